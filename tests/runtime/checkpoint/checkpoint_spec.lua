--- Checkpoints of several ranks: any world and sharding to any other, exact continuation, disks that fill up, kills.
local support = require "tests.support.support"
local ms = require "moonshard"

local child = support.root() .. "/tests/runtime/checkpoint/checkpoint_child.lua"
local quoted = support.shell_quoted

local function words(ranks, mode, folder, more)
  return ("%s run %s%s %s %s %s"):format(quoted(support.program()), ranks > 1 and "--nproc " .. ranks .. " " or "",
    quoted(child), mode, quoted(folder), more or "")
end

--- Runs the child as so many ranks; one core each is enough for them.
local function run(ranks, mode, folder, more)
  local result = support.run(words(ranks, mode, folder, more), { environment = { OMP_NUM_THREADS = "1" }, seconds = 240 })
  assert.are.equal(0, result.code, result.out .. result.err)
  return result
end

--- Without what every checkpoint has of its own: its id, which its files carry too.
local function index_of(checkpoint)
  local index = support.parse_json(assert(support.read(checkpoint .. "/index.json")))
  index.id, index.files, index.sha256, index.previous = nil, nil, nil, nil
  return index
end

--- Names of tensors that differ in any bit between two checkpoints of the same layout.
local function differences(a, b)
  local names = {}
  for _, file in ipairs(support.list(a)) do
    if file:find "%.safetensors$" then
      local one, other = ms.weights.open(a .. "/" .. file), ms.weights.open(b .. "/" .. file)
      for _, name in ipairs(one:names()) do
        if (one:tensor(name) - other:tensor(name)):abs():max():item() ~= 0 then names[#names + 1] = file .. ": " .. name end
      end
      one:close()
      other:close()
    end
  end
  return names
end

describe("a checkpoint", function()
  local folder
  before_each(function() folder = support.memory_folder() end)
  after_each(function() support.remove(folder) end)

  it("of any world and sharding goes on in any other as one process would", function()
    for ranks = 1, 3 do run(ranks, "save_all", folder) end
    assert.are.same({ "index.json", "rank00000.safetensors" }, support.list(folder .. "/3_ddp/step_00000002"))
    assert.are.same({ "index.json", "rank00000.safetensors", "rank00001.safetensors", "rank00002.safetensors" },
      support.list(folder .. "/3_zero3/step_00000002"))
    local parts = { 6 + 5 + 5, 5, 5 }
    for ranks = 1, 3 do
      run(ranks, "resume_all", folder)
      for rank = 0, ranks - 1 do
        local kinds = ranks == 1 and 6 or 5
        assert.are.equal(kinds * parts[1] .. " ", support.read(folder .. "/result." .. ranks .. "." .. rank))
      end
    end
  end)

  it("goes on bit for bit in the same world: weights, moments, noise, dropped labels, data, bound", function()
    for _, case in ipairs { { "ddp", "llama" }, { "zero3", "llama" }, { "zero2_replicated", "llama" }, { "zero2", "dit" } } do
      local here = folder .. "/" .. case[1]
      os.execute("mkdir " .. quoted(here))
      run(2, "straight", here, table.concat(case, " "))
      run(2, "again", here, table.concat(case, " "))
      local b, c = here .. "/b/step_00000004", here .. "/c/step_00000004"
      assert.are.same({}, differences(b, c))
      assert.are.same(index_of(b), index_of(c))
      assert.are.equal(4, index_of(c).privacy.steps)
      assert.are.equal(24, index_of(c).data.position)
      assert.is_true(#differences(here .. "/a/step_00000002", c) > 0)
    end
  end)

  it("that one rank cannot write is an error on all, and the older one stays", function()
    for _, kind in ipairs { "zero3", "ddp" } do
      local here = folder .. "/" .. kind
      os.execute("mkdir " .. quoted(here))
      run(3, "full_disk", here, kind)
      local hit = kind == "ddp" and 0 or 2
      for rank = 0, 2 do
        local text = support.read(here .. "/result." .. rank)
        if rank == hit then
          assert.is_nil(text)
        else
          assert.matches("^false 1 2 .*rank " .. hit .. ": .*cannot write: File too large", text)
        end
      end
      assert.are.same({ ".lock", "latest", "step_00000001" }, support.list(here .. "/saved"))
    end
  end)

  it("that is damaged is refused by all ranks, and nothing changes", function()
    run(1, "whole", folder)
    local function expect(pattern)
      run(2, "refuse", folder)
      for rank = 0, 1 do
        local text = support.read(folder .. "/result." .. rank)
        local good, error, step, privacy_steps, message = text:match "^(%S+) (%S+) (%d+) (%d+) (.*)$"
        assert.are.equal("false", good, text)
        assert.is_true(tonumber(error) < 1e-10, text)
        assert.are.equal("2 2", step .. " " .. privacy_steps)
        assert.matches(pattern, message)
      end
    end
    expect "without any complete one"
    local function remake()
      os.execute(("rm -rf %s/saved %s/x && mkdir %s/x"):format(folder, folder, folder))
      run(3, "straight", folder .. "/x", "zero3")
      os.execute(("mv %s/x/b %s/saved"):format(folder, folder))
    end
    remake()
    local step = folder .. "/saved/step_00000004/"
    os.execute("mv " .. step .. "rank00002.safetensors " .. folder .. "/aside")
    expect "rank00002%.safetensors: cannot read: No such file"
    os.execute(("head -c 1000 %s/aside >%srank00002.safetensors"):format(folder, step))
    expect "rank00002%.safetensors: .*cut short"
    os.execute(("cp %s/x/a/step_00000002/rank00002.safetensors %s"):format(folder, step))
    expect "files of two checkpoints"
    -- One byte of a file that one rank of the two reads.
    local good = support.read(folder .. "/aside")
    support.write(step .. "rank00002.safetensors", good:sub(1, -2) .. (good:sub(-1) == "x" and "y" or "x"))
    expect "rank00002%.safetensors: tensor '[^']+': expected CRC%-32C %x+ of its bytes %d+ to %d+, as the header says, got %x+;"
    support.write(step .. "rank00002.safetensors", good)
    local index = support.read(step .. "index.json")
    local edited, count = index:gsub('("private":true,"steps":)4', "%11")
    assert.are.equal(1, count)
    support.write(step .. "index.json", edited)
    expect "index%.json: expected SHA%-256 %x+, as it says itself, got %x+; it was changed or damaged"
    support.write(step .. "index.json", index)
    run(2, "resume_saved", folder)
  end)

  it("under a key goes on with it alone, and all ranks say the same", function()
    run(2, "keys", folder)
    local text = support.read(folder .. "/result.0")
    assert.are.equal(text, support.read(folder .. "/result.1"))
    local of = {}
    for case, rest in text:gmatch "([^:\n]+): ([^\n]+)" do of[case] = rest end
    assert.matches("^2 claim $", of.key)
    assert.matches("^2 the resumed run had none: its HMAC was not checked", of.none)
    assert.matches("^2 claim .*index%.json: expected an HMAC under the key", of.other)
    assert.matches("^2 claim .*expected MOONSHARD_CHECKPOINT_KEY_FILE on all ranks or on none", of["one rank"])
  end)

  it("of sums that were rounded keeps the reason for no claim", function()
    run(2, "rounded", folder)
    for rank = 0, 1 do
      assert.matches("^the resumed run had none: reduce_dtype = bfloat16", support.read(folder .. "/result." .. rank))
    end
  end)

  it("is whole whenever ranks are killed: the newest loads, nothing is lost or counted twice", function()
    math.randomseed(7)
    local acknowledged_once = 0
    for trial = 1, 6 do  -- both wrappers, each with either rank and with both as the victims
      local kind = trial % 2 == 0 and "ddp" or "zero3"
      local here = folder .. "/" .. kind
      os.execute("mkdir -p " .. quoted(here) .. "; rm -f " .. quoted(here) .. "/pid.* " .. quoted(here) .. "/acknowledged")
      os.execute(("OMP_NUM_THREADS=1 %s >%s/log 2>&1 & echo $! >%s/launcher"):format(words(2, "forever", here, kind), here, here))
      assert.is_true(support.wait_for(function() return support.read(here .. "/pid.0") and support.read(here .. "/pid.1") end, 30))
      os.execute(("sleep %.3f"):format(0.2 + math.random() * 0.8))
      -- One rank alone, or both: the other must not finish what the first began.
      local pids = { support.read(here .. "/pid.0"), support.read(here .. "/pid.1") }
      local victims = trial % 3 == 0 and pids[1] .. " " .. pids[2] or pids[trial % 3]
      os.execute("kill -9 " .. victims)
      local function gone()
        for _, pid in ipairs(pids) do
          if support.exists("/proc/" .. pid .. "/stat") and not support.read("/proc/" .. pid .. "/stat"):find "%) Z " then return false end
        end
        return true
      end
      assert.is_true(support.wait_for(gone, 30), "ranks that go on")
      local acknowledged = tonumber(support.read(here .. "/acknowledged") or "") or 0
      if acknowledged > 0 then acknowledged_once = acknowledged_once + 1 end
      local step, privacy_steps, error = run(2, "look", here, kind).out:match "(%d+) (%d+) (%S+)\n$"
      step = tonumber(step)
      assert.is_true(step >= acknowledged, ("trial %d: acknowledged %d, found %d"):format(trial, acknowledged, step))
      assert.are.equal(step, tonumber(privacy_steps))
      assert.are.equal(0, tonumber(error))
      for _, name in ipairs(support.list(here .. "/saved")) do assert.is_nil(name:find("partial", 1, true), name) end
    end
    assert.is_true(acknowledged_once > 0)
  end)
end)
