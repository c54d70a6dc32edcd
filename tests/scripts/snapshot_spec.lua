--- Memory snapshots of PyTorch, whoever wrote them: read without running anything, and drawn over time.
local support = require "tests.support.support"
local ms = require "moonshard"
local pickle = require "moonshard.snapshot.pickle"
local timeline = require "moonshard.snapshot.timeline"

local data = support.root() .. "/tests/data/viewer/"

describe("a pickle", function()
  it("is read in every protocol that torch writes, with the same result", function()
    local first = ms.snapshot(data .. "snapshot_protocol2.pickle")
    for _, protocol in ipairs { 4, 5 } do
      local other = ms.snapshot(data .. ("snapshot_protocol%d.pickle"):format(protocol))
      first.path, other.path = nil, nil
      assert.are.same(first, other)
    end
  end)

  it("never runs what it names: arguments stand for the result", function()
    -- cos\nsystem\n(X<text>tR.: os.system(text).
    local value = pickle.parse("\128\2cos\nsystem\n(X\4\0\0\0echotR.", "test")
    assert.are.equal("echo", value)
  end)

  it("that is damaged, foreign or no snapshot is refused with its place", function()
    local text = support.read(data .. "snapshot_protocol4.pickle")
    for _, bad in ipairs { "", "text", text:sub(1, #text - 40), "\128\4\255." } do
      local ok, message = pcall(pickle.parse, bad, "file")
      assert.is_false(ok)
      assert.matches("^file: ", message)
    end
    local folder = support.temporary_folder()
    support.write(folder .. "/list.pickle", "\128\2].")
    local ok, message = pcall(timeline.load, folder .. "/list.pickle")
    assert.is_false(ok)
    assert.matches("expected a memory snapshot of PyTorch (segments, device_traces), got another pickle", message, 1, true)
    assert.is_false((pcall(timeline.load, folder .. "/nothing.pickle")))
    support.remove(folder)
  end)

  it("with any byte changed is read or refused, and never more", function()
    local text = support.read(data .. "snapshot_protocol4.pickle")
    for at = 3, #text, 7 do
      local changed = text:sub(1, at - 1) .. string.char((text:byte(at) + 77) % 256) .. text:sub(at + 1)
      local ok, message = pcall(pickle.parse, changed, "file")
      assert.is_true(ok or tostring(message):match("^file: ") ~= nil, tostring(message))
    end
  end)
end)

describe("a snapshot over time", function()
  it("ends with what its segments hold, and adds up", function()
    local found = ms.snapshot(data .. "snapshot_torch.pickle")
    assert.are.equal(#found.ms, #found.total)
    assert.is_true(found.peak_bytes <= found.reserved_bytes)
    for _, name in ipairs(found.order) do
      assert.are.equal(#found.ms, #found.places[name])
      for i, bytes in ipairs(found.places[name]) do assert.is_true(bytes >= 0 and bytes <= found.total[i]) end
    end
    assert.matches("moonshard::models::Linear::forward", found.order[1], 1, true)
  end)

  it("is drawn by moonshard plot", function()
    local folder = support.temporary_folder()
    local result = support.run(("%s plot %ssnapshot_torch.pickle --out %s"):format(support.shell_quoted(support.program()), data, folder),
      { folder = folder })
    assert.are.equal(0, result.code, result.err)
    local spec = support.parse_json(support.read(folder .. "/snapshot_torch_timeline.plot.json"))
    assert.are.equal("stacked_area", spec.panels[1].kind)
    assert.matches("Memory over time: snapshot_torch.pickle", spec.title, 1, true)
    result = support.run(("%s plot nothing.pickle"):format(support.shell_quoted(support.program())), { folder = folder })
    assert.are.equal(1, result.code)
    support.remove(folder)
  end)
end)
