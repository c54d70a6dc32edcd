--- moonshard compare and moonshard export on real files; TensorBoard events are read back by a parser of their own.
local support = require "tests.support.support"
local ms = require "moonshard"
local bit = require "bit"
local fake = require "tests.support.fake_runs"
local ffi = require "ffi"

local folder
before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local function run(words) return support.run(("exec %s %s"):format(support.shell_quoted(support.program()), words), { folder = folder }) end

local function two_modes(root)
  return fake.make(root or folder, { "mode" }, {
    { options = { mode = "none", seq_length = 64 }, metrics = fake.metrics(10, 100), asked = { mode = "no_dp" } },
    { options = { mode = "flash", seq_length = 64 }, metrics = fake.metrics(25, 150), asked = { mode = "flash_fsdp" } },
  })
end

describe("moonshard compare", function()
  it("shows only options that differ, then figures with their ratio", function()
    local result = run("compare " .. two_modes().path)
    assert.are.equal(0, result.code, result.err)
    assert.matches("\nmode  none   flash", result.out)
    assert.is_nil(result.out:find("seq_length", 1, true))
    assert.matches("median_time_ms%s+10%s+25%s+2.5x", result.out)
    assert.matches("peak_memory_mb%s+100%s+150%s+1.5x", result.out)
  end)

  it("--all shows what agrees, too", function()
    local result = run("compare --all " .. two_modes().path)
    assert.matches("seq_length%s+64%s+64", result.out)
    assert.matches("peak_memory_gb", result.out, 1, true)
  end)

  it("puts points of two folders beside each other by what varies inside them", function()
    local first = two_modes(folder .. "/a")
    local second = fake.make(folder .. "/b", { "mode" }, {
      { options = { mode = "flash", seq_length = 128 }, metrics = fake.metrics(50, 300) },
      { options = { mode = "none", seq_length = 128 }, status = "oom" },
    })
    local result = run(("compare %s %s"):format(first.path, second.path))
    assert.are.equal(0, result.code, result.err)
    assert.matches("seq_length%s+64%s+128", result.out)
    assert.matches("mode=flash%s+25%s+50%s+2x", result.out)
    assert.matches("mode=none%s+10%s+oom%s+%-", result.out)
  end)

  it("takes result files, the suites' too", function()
    for name, figures in pairs { a = { "no_dp", 2, 1 }, b = { "ghost", 3, 2 } } do
      support.write(("%s/%s_result.json"):format(folder, name),
        ('{"mode": "%s", "seq_length": 8, "avg_time_ms": %d, "peak_memory_mb": 4, "config": {"sigma": %d}}'):format(unpack(figures)))
    end
    local result = run("compare a_result.json b_result.json")
    assert.are.equal(0, result.code, result.err)
    assert.matches("sigma%s+1%s+2", result.out)
    assert.matches("avg_time_ms%s+2%s+3%s+1.5x", result.out)
  end)

  it("--json is JSON, with null where there is no ratio", function()
    local result = run("compare --json " .. two_modes().path)
    local parsed = support.parse_json(result.out)
    assert.are.equal(2, #parsed.tables)
    assert.are.equal("mode", parsed.tables[1].rows[1][1])
  end)

  it("--only takes points by a glob, in the script's spelling too", function()
    local runs = fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = "none", seq_length = 8 }, metrics = fake.metrics(1, 1), asked = { mode = "no_dp" } },
      { options = { mode = "none", seq_length = 16 }, metrics = fake.metrics(2, 1), asked = { mode = "no_dp" } },
      { options = { mode = "flash", seq_length = 8 }, metrics = fake.metrics(3, 1) },
    })
    local result = run("compare --only mode=no_* " .. runs.path)
    assert.matches("median_time_ms%s+1%s+2%s+2x", result.out)
    assert.is_nil(result.out:find("flash", 1, true))
  end)

  it("mistakes are one line: exit code 2 for words, 1 for files", function()
    support.write(folder .. "/broken.json", '{"a": [1,')
    for words, wanted in pairs {
      ["compare"] = { 2, "compare: expected run folders or result files, got nothing" },
      ["compare --jsn x"] = { 2, "unknown option '--jsn'; did you mean '--json'?" },
      ["compare --only mode " .. folder] = { 2, "option '--only': expected KEY=GLOB, got 'mode'" },
      ["compare broken.json"] = { 1, "moonshard: broken.json: expected JSON, got malformed" },
      ["compare nowhere"] = { 1, "compare: expected a run folder or a result file, got 'nowhere', which is not there" },
      ["compare --metrics median_time_m " .. two_modes().path] =
        { 1, "no result has the figure 'median_time_m'; did you mean 'median_time_ms'?" },
    } do
      local result = run(words)
      assert.are.equal(wanted[1], result.code, words .. ": " .. result.err)
      assert.matches(wanted[2], result.err, 1, true)
      assert.is_nil(result.err:find("traceback", 1, true))
    end
  end)
end)

describe("moonshard export", function()
  it("writes CSV, Markdown, LaTeX and JSON to the screen or to a file", function()
    local path = two_modes().path
    assert.matches("^mode,status,median ms,IQR ms,95 %% of median,peak MiB,tokens/s,loss,epsilon\r?\nnone,ok,10,,,100,100,,not private",
      run("export --format csv " .. path).out)
    assert.matches("^| mode | status |", run("export --format=md " .. path).out)
    assert.matches("\\begin{tabular}", run("export --format latex " .. path).out, 1, true)
    assert.are.equal(2, #support.parse_json(run("export --format json " .. path).out).points)
    local result = run(("export %s --format csv --table overhead --output new/folder/x.csv"):format(path))
    assert.are.equal(0, result.code, result.err)
    assert.matches("time +%", support.read(folder .. "/new/folder/x.csv"), 1, true)
  end)

  it("mistakes are one line", function()
    for words, wanted in pairs {
      ["export --format csv"] = { 2, "export: expected a run folder, got nothing" },
      ["export ."] = { 2, "export: expected --format csv|md|latex|json|tensorboard, got none" },
      ["export . --format pdf"] = { 2, "option '--format': expected csv | md | latex | json | tensorboard, got 'pdf'" },
      ["export nowhere --format csv"] = { 1, "nowhere: expected a run folder" },
    } do
      local result = run(words)
      assert.are.equal(wanted[1], result.code, words .. ": " .. result.err)
      assert.matches(wanted[2], result.err, 1, true)
    end
  end)
end)

-- A reader of event files that shares nothing with the writer: framing, checksums bit by bit, protobuf fields.
local function crc32c(bytes)
  local value = bit.bnot(0)
  for i = 1, #bytes do
    value = bit.bxor(value, bytes:byte(i))
    for _ = 1, 8 do
      value = bit.band(value, 1) ~= 0 and bit.bxor(bit.rshift(value, 1), 0x82f63b78) or bit.rshift(value, 1)
    end
  end
  return bit.bnot(value)
end

local function unsigned(bytes)
  local value = 0
  for i = #bytes, 1, -1 do value = value * 256 + bytes:byte(i) end
  return value
end

local function masked(bytes)
  local value = crc32c(bytes)
  local rotated = bit.bor(bit.rshift(value, 15), bit.lshift(value, 17)) % 2 ^ 32
  return (rotated + 0xa282ead8) % 2 ^ 32
end

local function records_of(bytes)
  local list, at = {}, 1
  while at <= #bytes do
    local head = bytes:sub(at, at + 7)
    local length = unsigned(head)
    assert.are.equal(masked(head), unsigned(bytes:sub(at + 8, at + 11)), "checksum of a length")
    local data = bytes:sub(at + 12, at + 11 + length)
    assert.are.equal(length, #data)
    assert.are.equal(masked(data), unsigned(bytes:sub(at + 12 + length, at + 15 + length)), "checksum of a record")
    list[#list + 1] = data
    at = at + 16 + length
  end
  return list
end

local function fields_of(message)
  local fields, at = {}, 1
  local function varint()
    local value, factor = 0, 1
    repeat
      local byte = message:byte(at)
      value, factor, at = value + byte % 128 * factor, factor * 128, at + 1
    until byte < 128
    return value
  end
  while at <= #message do
    local key = varint()
    local field, kind = math.floor(key / 8), key % 8
    local value
    if kind == 0 then
      value = varint()
    else
      local size = kind == 1 and 8 or kind == 5 and 4 or varint()
      value = message:sub(at, at + size - 1)
      at = at + size
    end
    fields[field] = value
  end
  return fields
end

local function real(bytes, kind) return tonumber(ffi.cast("const " .. kind .. "*", bytes)[0]) end

describe("TensorBoard events", function()
  it("the checksum of this reader is the published one", function()
    assert.are.equal(0xe3069283, crc32c("123456789") % 2 ^ 32)       -- RFC 3720, appendix B.4 and the usual check value
    assert.are.equal(0x8a9136aa, crc32c(("\0"):rep(32)) % 2 ^ 32)
    assert.are.equal(0x62a8ab43, crc32c(("\255"):rep(32)) % 2 ^ 32)
  end)

  it("hold every step, figure and option, behind right checksums", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "flash" }, metrics = fake.metrics(12.5, 64),
      result = { created = "2026-11-15T11:20:31Z", steps = { { step = 1, loss = 2.5, time_ms = 10, phases_ms = { forward = 4 } },
        { step = 300, loss = -0.25, time_ms = 11 } } } } })
    local result = run(("export %s --format tensorboard --output events"):format(runs.path))
    assert.are.equal(0, result.code, result.err)
    local names = support.list(folder .. "/events")
    assert.are.equal(1, #names)
    local file = support.list(folder .. "/events/" .. names[1])[1]
    assert.matches("^events%.out%.tfevents%.1794741631%.", file)
    local list = records_of(support.read(("%s/events/%s/%s"):format(folder, names[1], file)))
    assert.are.equal("brain.Event:2", fields_of(list[1])[3])
    local seen, text, times = {}, nil, {}
    for i = 2, #list do
      local event = fields_of(list[i])
      local value = fields_of(fields_of(event[5])[1])
      times[value[1]] = real(event[1], "double")
      if value[2] then
        seen[value[1] .. "@" .. (event[2] or 0)] = real(value[2], "float")
      else
        assert.are.equal("text", fields_of(fields_of(value[9])[1])[1])
        text = fields_of(value[8])[8]
      end
    end
    assert.are.equal(2.5, seen["step/loss@1"])
    assert.are.equal(-0.25, seen["step/loss@300"])
    assert.are.equal(4, seen["phase_ms/forward@1"])
    assert.are.equal(12.5, seen["metric/median_time_ms@300"])
    assert.matches("| mode | flash |", text, 1, true)
    assert.are.equal(1794741631 + 300, times["step/loss"])
  end)
end)

describe("ms.compare", function()
  it("raises at the caller's line for a path that is not there", function()
    local ok, message = pcall(function()
      local result = ms.compare { "nowhere" }
      return result
    end)
    assert.is_false(ok)
    assert.matches("compare_spec.lua:%d+: ms.compare: expected a run folder or a result file, got 'nowhere'", message)
  end)
end)
