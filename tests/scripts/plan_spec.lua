--- ms.plan: searches, single predictions, scripts, mistakes; and the verb.
local support = require "tests.support.support"
local ms = require "moonshard"

local cluster = { model = "llama3.2-1b", gpu = "h200", gpus = 8, global_batch = 64, seq_length = 512 }

local function with(more)
  local all = {}
  for key, value in pairs(cluster) do all[key] = value end
  for key, value in pairs(more) do all[key] = value end
  return all
end

describe("ms.plan", function()
  it("gives the fastest plans that fit first, and says that they are modelled", function()
    local plan = ms.plan(with { mode = "bookkeeping" })
    assert.is_true(#plan.plans > 1)
    assert.is_true(plan.plans[1].step_ms <= plan.plans[2].step_ms)
    for _, row in ipairs(plan.plans) do
      assert.are.equal(64, row.options.batch_size * row.options.grad_accum * 8)
      assert.is_true(row.peak_memory_bytes < plan.memory_bytes)
    end
    assert.truthy(tostring(plan):find "^modelled: llama3.2%-1b, 8 x NVIDIA H200")
    assert.truthy(plan:explain():find "activations")
  end)

  it("keeps what is given and tries what is listed", function()
    local plan = ms.plan(with { parallel = "fsdp", sharding = "zero3", try = { checkpointing = { "block" } }, mode = "none" })
    for _, row in ipairs(plan.plans) do
      assert.are.equal("zero3", row.options.sharding)
      assert.are.equal("block", row.options.checkpointing)
    end
  end)

  it("computes steps, hours, price and epsilon of the run", function()
    local plan = ms.plan(with { mode = "bookkeeping", examples = 6400, epochs = 1, price_per_gpu_hour = 2, keep = 1 })
    local run = plan.best.run
    assert.are.equal(100, run.steps)
    assert.is_true(math.abs(run.gpu_hours - 8 * 100 * plan.best.step_ms / 3.6e6) < 1e-9)
    assert.is_true(math.abs(run.price - 2 * run.gpu_hours) < 1e-9)
    assert.is_true(run.epsilon > 0)
  end)

  it("says why nothing fits", function()
    local plan = ms.plan(with { memory_gb = 1, mode = "none" })
    assert.are.equal(0, #plan.plans)
    assert.truthy(plan.too_large[1].why:find "GiB")
    assert.truthy(tostring(plan):find "nothing fits")
  end)

  it("predicts one configuration as it is given", function()
    local plan = ms.plan { model = "llama3.2-1b", gpu = "a100", batch_size = 2, seq_length = 512, search = false }
    assert.are.equal(1, plan.tried)
    assert.are.equal(2, plan.best.options.batch_size)
    assert.truthy(table.concat(plan.assumptions, "\n"):find "data sheets")
  end)

  it("writes a script that runs the plan", function()
    local plan = ms.plan { model = "llama3-tiny", mode = "bookkeeping", gpu = "cpu", batch_size = 2, seq_length = 16, search = false }
    local chunk = assert(loadstring(plan:script()))
    local asked
    local real = ms.run
    ms.run = function(options) asked = options end
    chunk()
    ms.run = real
    assert.are.equal("bookkeeping", asked.mode)
    assert.are.equal(2, asked.batch_size)
    assert.are.equal("ok", ms.run(asked).status)
    assert.truthy(loadstring(plan:sweep_script()))
  end)

  it("names what is wrong", function()
    local function message_of(options) return select(2, pcall(ms.plan, options)) end
    assert.truthy(tostring(message_of { gpu = "h300" }):find "expected h200")
    assert.truthy(tostring(message_of { gpsu = 8 }):find "gpus")
    assert.truthy(tostring(message_of { gpus = 0 }):find "above 0")
    assert.truthy(tostring(message_of(with { global_batch = 7 })):find "multiple of the ranks")
  end)
end)

describe("moonshard plan", function()
  it("prints plans as JSON, marked as modelled", function()
    local said = support.run_program("plan --model llama3.2-1b --gpu h200 --gpus 2 --global-batch 8 --seq-length 256 --keep 1 --json")
    assert.are.equal(0, said.code)
    local out = said.out
    assert.truthy(out:find '"modelled": true')
    assert.truthy(out:find '"step_ms"')
  end)
end)
