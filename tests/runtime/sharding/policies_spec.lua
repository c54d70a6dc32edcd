--- Policies of units on real ranks: training, evaluation, generation and checkpoints are those of a model without them.
local support = require "tests.support.support"
local message_of = support.message_of

local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local function on_ranks(ranks, text) return support.on_ranks(folder, ranks, text, 180) end

-- Trained, asked for text, saved, resumed.
local script = [[
local policies = {
  { units = { "*.1", "root" }, reshard = false, offload = true },
  { units = "*.0", reshard = true },
}
local ways = {
  none = {},
  policies = { policies = policies },
  root = { reshard_root = true },
  zero2 = { sharding = "zero2", policies = { { units = "root, *.2", reshard = true, offload = true } } },
}
local function trainer(way, lora)
  local model = ms.model("qwen2.5-tiny", { device = "cpu", dtype = "float64", task = "lm", num_layers = 3, seed = 0,
    lora = lora and { rank = 2 } or nil })
  local options = { replicate = 2, keep_frozen = lora }
  for name, value in pairs(way) do options[name] = value end
  return ms.trainer { model = model, optimizer = ms.optim.adamw { lr = 1e-2 }, parallel = ms.fsdp(options), grad_accum = 2,
    clip = ms.clip(lora and "ghost" or "bookkeeping", { noise_multiplier = 0.5 }), privacy = { secure = false },
    data = ms.data.synthetic { batch_size = 2, seq_length = 8 } }
end
local function weights(model)
  local list = {}
  for _, name in ipairs(model.parameters) do list[name] = model:parameter(name):clone() end
  return list
end
local function farthest(a, b)
  local largest = 0
  for name in pairs(a) do largest = math.max(largest, (a[name] - b[name]):abs():max():item()) end
  return largest
end
for _, lora in ipairs { false, true } do
  local expected
  for _, name in ipairs { "none", "policies", "root", "zero2" } do
    local run = trainer(ways[name], lora)
    local found = { run:step().loss, run:step().loss }
    found.text = table.concat(run:generate { prompt = { 5, 6, 7 }, max_new_tokens = 6, temperature = 0, stop = false }.ids[1], " ")
    run:save("saved_" .. name .. tostring(lora))
    found.next = run:step().loss
    run:gather()
    found.weights = weights(run.model)
    run:close()
    expected = expected or found
    assert(math.abs(found[2] - expected[2]) < 1e-12 and math.abs(found.next - expected.next) < 1e-12, name)
    assert(found.text == expected.text, name .. ": " .. found.text)
    assert(farthest(found.weights, expected.weights) < 1e-12, name)
  end
  -- What one way has saved another goes on with.
  for _, name in ipairs { "policies", "root", "zero2" } do
    local run = trainer(ways.none, lora)
    assert(run:resume("saved_" .. name .. tostring(lora)) == 2)
    assert(math.abs(run:step().loss - expected.next) < 1e-12, name)
    run:close()
    run = trainer(ways[name], lora)
    assert(run:resume("saved_none" .. tostring(lora)) == 2)
    assert(math.abs(run:step().loss - expected.next) < 1e-12, name)
    run:close()
  end
end
if ms.dist.rank() == 0 then print("the same") end
]]

describe("policies of units on two copies of two ranks", function()
  it("leave training, generation and checkpoints as they are", function()
    assert.matches("^the same", on_ranks(4, script))
  end)

  it("evaluate as one process does, with parts on the host too", function()
    local text = [[
      local lines = {}
      for i = 1, 24 do lines[i] = ('{"text": "%s", "label": "%d"}'):format(("word%d "):format(i):rep(5), i % 2) end
      local name = "labelled" .. ms.dist.rank() .. ".jsonl"
      local file = assert(io.open(name, "w"))
      file:write(table.concat(lines, "\n") .. "\n")
      file:close()
      local model = ms.model("llama3-tiny", { device = "cpu", dtype = "float64", task = "classify", vocab_size = 300, num_labels = 2,
        seed = 0 })
      local dataset = ms.data.classification { file = name, max_length = 12, model = model }
      local parallel = ms.dist.world() == 1 and ms.fsdp {} or ms.fsdp(PARALLEL)
      local trainer = ms.trainer { model = model, parallel = parallel, optimizer = ms.optim.sgd { lr = 0.1 },
        grad_accum = 2 / ms.dist.world(), data = ms.data.synthetic { batch_size = 4, seq_length = 8 } }
      trainer:step()
      local found = ms.evaluate(trainer, dataset, { batch_size = 5 })
      trainer:step()  -- and training goes on
      if ms.dist.rank() == 0 then print(("%.10g %.10g"):format(found.loss, found.accuracy)) end
    ]]
    local function evaluated(ranks, parallel) return on_ranks(ranks, (text:gsub("PARALLEL", parallel))) end
    local whole = evaluated(1, "{}")
    assert.matches("^%d", whole)
    for _, parallel in ipairs { "{ cpu_offload = true }", "{ reshard_root = true }",
      "{ policies = { { units = 'root', offload = true, reshard = true }, { units = '*.1', reshard = false } } }" } do
      assert.are.equal(whole, evaluated(2, parallel), parallel)
    end
  end)

  it("bound the global norm of gradients that are partly on the host", function()
    local text = [[
      local model = ms.model("llama3-tiny", { device = "cpu", dtype = "float64", task = "lm", seed = 0 })
      local trainer = ms.trainer { model = model, clip_global_norm = 1e-3, optimizer = ms.optim.adamw { lr = 1e-2 },
        grad_accum = 2 / ms.dist.world(), data = ms.data.synthetic { batch_size = 2, seq_length = 8 }, parallel = ms.fsdp(PARALLEL) }
      local last
      for _ = 1, 4 do last = trainer:step() end
      if ms.dist.rank() == 0 then print(("%.10g %.10g"):format(last.grad_norm, last.loss)) end
    ]]
    local function trained(ranks, parallel) return on_ranks(ranks, (text:gsub("PARALLEL", parallel))) end
    local whole = trained(1, "{}")
    for _, parallel in ipairs { "{ cpu_offload = true }", "{ policies = { { units = 'root', offload = true } } }" } do
      assert.are.equal(whole, trained(1, parallel), parallel)
      assert.are.equal(whole, trained(2, parallel), parallel)
    end
  end)
end)

describe("policies of units", function()
  local ms = require "moonshard"

  it("that round sums before the noise make no claim", function()
    local out = on_ranks(2, [[
      local record = ms.run { model = "linear-tiny", device = "cpu", mode = "flash", parallel = "fsdp", batch_size = 2, iters = 1,
        warmup = 0, noise_multiplier = 1, unit_policies = "layers.1: reduce_dtype = bfloat16" }
      if ms.dist.rank() == 0 then print(record.privacy.why_no_epsilon) end]])
    assert.matches("^reduce_dtype = bfloat16 rounds the ranks' sums before the noise is added", out)
  end)

  it("are a table or a text, and say what is wrong with them", function()
    local table_form = ms.fsdp { policies = { { units = "model.layers.*", reshard = false }, { units = "root", dtype = "fp32" } } }
    assert.are.equal("model.layers.*: reshard = no; root: dtype = float32", table_form.unit_policies)
    assert.are.same(table_form, ms.fsdp { unit_policies = table_form.unit_policies })
    local function refusal(f, ...) return message_of(f, ...) end
    assert.matches("option 'policies': expected one of dtype, reduce_dtype, reshard, offload, got 'ofload'; did you mean 'offload'?",
      refusal(ms.fsdp, { policies = { { units = "root", ofload = true } } }), 1, true)
    assert.matches("expected it or unit_policies, the same as a text, got both",
      refusal(ms.fsdp, { policies = {}, unit_policies = "root: offload = yes" }), 1, true)
    assert.matches("expected reduce_dtype alone under ddp", refusal(ms.ddp, { policies = { { units = "*", offload = true } } }), 1, true)
    assert.matches("got 'embed*', which matches none; the units are root, model.layers.0, model.layers.1",
      refusal(ms.trainer, { model = ms.model("llama3-tiny", { device = "cpu" }),
        parallel = ms.fsdp { policies = { { units = "embed*", offload = true } } } }), 1, true)
  end)

  it("are checked before a sweep begins, and stand in records and predictions", function()
    local wrong = { model = "llama3-tiny", device = "cpu", parallel = "fsdp", unit_policies = "block.*: reshard = no" }
    assert.matches("got 'block.*', which matches none; the units are root, model.layers.0", message_of(ms.run, wrong), 1, true)
    local right = { model = "llama3-tiny", device = "cpu", parallel = "fsdp", sharding = "zero3", world = "fake:2", link = "instant",
      batch_size = 2, seq_length = 8, iters = 1, warmup = 0, unit_policies = "*.1: reshard = no", reshard_root = true, optimizer = "adam" }
    local record = ms.run(right)
    assert.are.equal("*.1: reshard = no", record.options.unit_policies)
    assert.is_true(record.options.reshard_root)
    right.ranks = 2
    right.iters, right.warmup = nil, nil
    local predicted = ms.rank_memory(right)
    assert.are.equal(predicted.parameter_bytes, record.sharding.parameter_bytes)
    assert.are.equal(predicted.optimizer_bytes, record.sharding.optimizer_bytes)
    assert.are.equal(predicted.gathered_bytes, record.sharding.gathered_peak_bytes)
  end)
end)
