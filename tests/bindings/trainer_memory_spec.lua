--- ms.trainer, ms.run and memory: what cannot fit is refused before anything is made, with advice.
local support = require "tests.support.support"
local ms = require "moonshard"

local function trainer_of(batch_size, options)
  local all = { model = ms.model("llama3-tiny", { num_layers = 4 }), optimizer = ms.optim.adam {},
    data = ms.data.synthetic { batch_size = batch_size, seq_length = 1024 } }
  for key, value in pairs(options or {}) do all[key] = value end
  return function() return ms.trainer(all) end
end

describe("ms.trainer", function()
  it("refuses a batch that cannot fit, with the largest that would and what saves memory", function()
    local message = support.message_of(trainer_of(2 ^ 20))
    assert.truthy(message:find "trainer: llama3%-tiny cannot fit into memory: expected at most")
    assert.truthy(message:find "check_memory = false")
    local batch = tonumber(message:match "batch_size = (%d+)")
    assert.is_true(batch > 1 and batch < 2 ^ 20)
    assert.truthy(message:find "the largest batch that is predicted to fit")
    assert.truthy(message:find "checkpointing = block")
    assert.is_nil(message:find "on 2 ranks", "they would share this memory")
    local last = math.huge
    for size, unit in message:gmatch "saves ([%d.]+) ([GM])iB" do
      local bytes = tonumber(size) * (unit == "G" and 1024 or 1)
      assert.is_true(bytes <= last, message)
      last = bytes
    end
  end)

  it("makes it all the same with check_memory = false, and what fits without a word", function()
    trainer_of(2 ^ 20, { check_memory = false })():close()
    local trainer = trainer_of(1)()
    assert.is_true(trainer:step().loss > 0)
    trainer:close()
  end)
end)

describe("a script", function()
  local folder, script
  before_each(function()
    folder = support.temporary_folder()
    script = folder .. "/script.lua"
  end)
  after_each(function() support.remove(folder) end)

  local function run(words, text)
    support.write(script, "local ms = require 'moonshard'\n" .. text)
    return support.run_program(("run %s %s"):format(words, support.shell_quoted(script)))
  end
  local huge = [[
    ms.trainer { model = ms.model("llama3-tiny", { device = "cpu" }), data = ms.data.synthetic { batch_size = 2^20, seq_length = 1024 },
      parallel = ms.dist.world() > 1 and ms.ddp() or nil }]]
  local function gib(message) return tonumber(message:match "expected at most ([%d.]+) GiB") end

  it("that was refused a trainer ends with exit code 3, the advice and no traceback", function()
    local result = run("", huge)
    assert.are.equal(3, result.code, result.err)
    assert.matches("script.lua:2: trainer: llama3-tiny cannot fit into memory: ", result.err, 1, true)
    assert.matches("-> batch_size = ", result.err, 1, true)
    assert.is_nil(result.err:find "traceback", result.err)
    -- Other errors have theirs.
    assert.matches("traceback", run("", "error 'no'").err)
  end)

  it("that was refused a model ends so, too, before it is made", function()
    local result = run("", 'ms.model("llama3-tiny", { device = "cpu", num_layers = 2000, intermediate_dim = 2 ^ 20 })')
    assert.are.equal(3, result.code, result.err)
    assert.matches("script.lua:2: model: llama3-tiny cannot fit into memory: expected at most ", result.err, 1, true)
    assert.is_nil(result.err:find "traceback", result.err)
    -- One that is half as large again as what is free is said to fit in 16 bits.
    local each = tonumber(result.err:match "got ([%d.]+) GiB") / 2000
    result = run("", ('ms.model("llama3-tiny", { device = "cpu", num_layers = %d, intermediate_dim = 2 ^ 20 })')
      :format(1.5 * gib(result.err) / each))
    assert.matches('in float32; dtype = "bfloat16" takes half of it, ms.plan says', result.err, 1, true)
  end)

  it("whose own words are about memory has failed, and not run out of it", function()
    assert.are.equal(1, run("", 'error("of shared memory: too little")').code)
    local result = run("", [[
      local record = ms.run { model = "llama3-tiny", device = "cpu", iters = 1, memory_limit_mb = 4, check_memory = false }
      error("own words, then: " .. record.error)]])
    assert.are.equal(3, result.code, result.err)
    assert.matches("traceback", result.err)
  end)

  it("on ranks of one host has a part of its memory for each of them, and all are refused alike", function()
    local one, two = run("", huge), run("--nproc 2", huge)
    assert.are.equal(3, two.code, two.err)
    assert.matches("on cpu for each of the 2 ranks that share it", two.err, 1, true)
    local share = gib(two.err) / gib(one.err)
    assert.is_true(share > 0.35 and share < 0.65, two.err)
    local asked = [[
      ms.run { model = "llama3-tiny", batch_size = 2^20, seq_length = 1024, parallel = "ddp", device = "cpu", profile = "off" }]]
    two = run("--nproc 2", asked)
    assert.are.equal(3, two.code, two.err)
    assert.matches("cannot fit into memory: ", two.err, 1, true)
  end)

  it("has the record of an experiment that was refused, with status oom", function()
    local result = run("", [[
      local record = ms.run { model = "llama3-tiny", batch_size = 2^20, seq_length = 1024, mode = "auto", device = "cpu" }
      print(record.status, record.phase, #record.savings > 0)]])
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("oom\tplan\ttrue\n", result.out)
  end)
end)
