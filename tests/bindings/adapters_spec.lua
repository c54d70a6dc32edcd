--- LoRA from Lua: the table `lora`, training, saving, resuming, merging, and in sweeps' flat options.
local support = require "tests.support.support"
local ms = require "moonshard"

local message_of = support.message_of

local function tiny(more)
  local options = { device = "cpu", num_layers = 1, seed = 4 }
  for key, value in pairs(more or {}) do options[key] = value end
  return ms.model("llama3-tiny", options)
end

local function trainer(model, parallel)
  return ms.trainer { model = model, data = ms.data.synthetic { batch_size = 2, seq_length = 6 }, parallel = parallel,
    clip = ms.clip("bookkeeping", { noise_multiplier = 1 }), optimizer = ms.optim.adam { lr = 0.01 }, privacy = { secure = false } }
end

describe("adapters", function()
  local folder
  before_each(function() folder = support.temporary_folder() end)
  after_each(function() support.remove(folder) end)

  it("are a table of options, and flat ones in experiments", function()
    local model = tiny { lora = { rank = 3, alpha = 6, targets = { "q_proj", "v_proj" }, dropout = 0.05 } }
    assert.are.equal(5, #model.trainable)  -- two of two matrices, and the head
    assert.are.equal("q_proj,v_proj", model.options.lora_targets)
    assert.are.equal(0.05, model.options.lora_dropout)
    local record = ms.run { model = "llama3-tiny", num_layers = 1, device = "cpu", lora_rank = 3, iters = 1, warmup = 0, batch_size = 2,
      seq_length = 6, mode = "auto" }
    assert.are.equal("ok", record.status)
    assert.matches("expected rank, alpha, targets or dropout, got 'rnak'", message_of(tiny, { lora = { rank = 2, rnak = 3 } }))
    assert.matches("expected { rank = …", message_of(tiny, { lora = { alpha = 3 } }))
    assert.matches("expected { rank = …", message_of(tiny, { lora = 3 }))
    assert.matches("lora_dropout': expected a number from %-1 to 0.999, got 1", message_of(tiny, { lora = { rank = 2, dropout = 1 } }))
  end)

  it("alone are trained, saved and merged", function()
    local model = tiny { lora = { rank = 2 } }
    local before = {}
    for _, name in ipairs(model.parameters) do before[name] = model:parameter(name):clone() end
    local run = trainer(model)
    for _ = 1, 3 do run:step() end
    local is_trained = {}
    for _, name in ipairs(model.trainable) do is_trained[name] = true end
    for _, name in ipairs(model.parameters) do
      local moved = (model:parameter(name) - before[name]):abs():max():item() > 0
      assert.are.equal(is_trained[name] == true, moved, name)
    end
    run:close()
    model:save_adapter(folder .. "/adapter")
    local again = tiny { adapter = folder .. "/adapter" }
    local int64 = { dtype = "int64" }
    local batch = { input_ids = ms.tensor({ { 1, 2, 3 }, { 7, 8, 9 } }, int64), labels = ms.tensor({ 0, 1 }, int64) }
    local scores = model:forward(batch)
    assert.are.equal(0, (again:forward(batch) - scores):abs():max():item())
    assert.is_true((model:merged():forward(batch) - scores):abs():max():item() < 1e-5)
    assert.matches("merged%(%) gives a model", message_of(model.save, model, folder .. "/whole"))
  end)

  it("go on from a checkpoint bit for bit, also from parts to a whole", function()
    local straight = tiny { lora = { rank = 2 } }
    local run = trainer(straight)
    for _ = 1, 4 do run:step() end
    local parts = tiny { lora = { rank = 2 } }
    local first = trainer(parts, ms.fsdp { keep_frozen = true })
    for _ = 1, 2 do first:step() end
    first:save(folder .. "/saved")
    local resumed = tiny { lora = { rank = 2 } }
    local second = trainer(resumed)
    assert.are.equal(2, second:resume(folder .. "/saved"))
    for _ = 1, 2 do second:step() end
    for _, name in ipairs(straight.parameters) do
      assert.are.equal(0, (straight:parameter(name) - resumed:parameter(name)):abs():max():item(), name)
    end
  end)
end)
