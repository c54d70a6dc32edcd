--- Training from Lua: batches of one's own, accumulation, frozen parameters, optimizers, schedules, saved models.
local support = require "tests.support.support"
local ms = require "moonshard"

local message_of = support.message_of

local wide = { dtype = "float64" }
local function numbers(shape, seed) return ms.randn(shape, seed, wide) end
local function linear(more)
  local options = { device = "cpu", dtype = "float64", hidden_dim = 6, num_layers = 2 }
  for key, value in pairs(more or {}) do options[key] = value end
  return ms.model("linear-tiny", options)
end
local function trainer(model, more)
  local clip = ms.clip("flash", { noise_multiplier = 0, max_grad_norm = 0.5 })
  local parts = { model = model, clip = clip, optimizer = ms.optim.sgd { lr = 0.1 } }
  for key, value in pairs(more or {}) do parts[key] = value end
  return ms.trainer(parts)
end
--- The largest difference between two models' parameters.
local function distance(one, other)
  local largest = 0
  for _, name in ipairs(one.parameters) do
    largest = math.max(largest, (one:parameter(name) - other:parameter(name)):abs():max():item())
  end
  return largest
end
local batch = { inputs = numbers({ 6, 6 }, 1), targets = numbers({ 6, 6 }, 2) }

describe("a step on a batch of one's own", function()
  it("reports the samples given, with the model's losses on them", function()
    local model = linear()
    local losses = model:losses(batch):tolist()
    local report = trainer(model):step(batch)
    assert.are.equal(6, report.batch_size)
    assert.are.equal(6, #report.norms)
    local mean = 0
    for _, loss in ipairs(losses) do mean = mean + loss / 6 end
    assert.is_true(math.abs(report.loss - mean) < 1e-12)
    assert.is_nil(report.phases.data)
  end)

  it("learns it: the loss falls to nothing without privacy, and falls with it", function()
    local model = linear { num_layers = 1 }
    local plain = trainer(model, { clip = ms.clip "none", optimizer = ms.optim.sgd { lr = 1 } })
    local first = plain:step(batch).loss
    local last
    for _ = 1, 300 do last = plain:step(batch).loss end
    assert.is_true(last < 0.02 * first, ("%g after %g"):format(last, first))
    local private = trainer(linear { num_layers = 1 }, { clip = ms.clip("auto", { noise_multiplier = 0.1 }) })
    for _ = 1, 100 do last = private:step(batch).loss end
    assert.is_true(last < 0.9 * first, ("%g after %g"):format(last, first))
  end)

  it("the order of the samples is the order of the norms", function()
    local one = trainer(linear()):step(batch).norms
    for i = 1, 6 do
      local single = { inputs = batch.inputs:select(1, i):reshape(1, 6), targets = batch.targets:select(1, i):reshape(1, 6) }
      assert.is_true(math.abs(trainer(linear()):step(single).norms[1] - one[i]) < 1e-12)
    end
  end)

  it("takes texts and images as their tasks want them", function()
    local ids = ms.tensor({ { 1, 2, 3, 4 }, { 5, 6, 7, 0 } }, { dtype = "int64" })
    local next_ids = ms.tensor({ { 2, 3, 4, -100 }, { 6, 7, -100, -100 } }, { dtype = "int64" })
    local lm = ms.model("qwen2.5-tiny", { device = "cpu", num_layers = 1 })
    assert.are.equal(8, trainer(lm):step({ input_ids = ids, labels = next_ids }).tokens)
    local classes = ms.model("llama3.1-tiny", { device = "cpu", num_layers = 1 })
    local mask = ms.tensor { { 1, 1, 1, 1 }, { 1, 1, 1, 0 } }
    local labels = ms.tensor({ 0, 2 }, { dtype = "int64" })
    local with_mask = trainer(classes):step({ input_ids = ids, labels = labels, attention_mask = mask }).norms
    local without = trainer(ms.model("llama3.1-tiny", { device = "cpu", num_layers = 1 })):step({ input_ids = ids, labels = labels }).norms
    assert.is_true(math.abs(with_mask[1] / without[1] - 1) < 1e-5)
    assert.is_true(math.abs(with_mask[2] / without[2] - 1) > 1e-3) -- the last real token is another one
    local dit = ms.model("dit-tiny", { device = "cpu", num_layers = 1 })
    local images = ms.data.synthetic({ model = dit, batch_size = 2 }):next()
    assert.are.same({ "inputs", "labels", "targets", "timesteps" }, support.keys(images))
    assert.are.equal(2 * 64, trainer(dit):step(images).tokens)
  end)

  it("a batch that does not fit is refused by name and changes nothing", function()
    local model = linear()
    local before = linear()
    local tr = trainer(model)
    assert.matches("batch field 'targets': expected a Tensor for task regress, got nothing",
      message_of(tr.step, tr, { inputs = batch.inputs }))
    assert.matches("batch field 'targets': expected the shape %[6, 6%] of inputs, got %[5, 6%]",
      message_of(tr.step, tr, { inputs = batch.inputs, targets = numbers({ 5, 6 }, 1) }))
    assert.matches("batch field 'inputs': expected %[samples, 6%], got %[6, 5%]",
      message_of(tr.step, tr, { inputs = numbers({ 6, 5 }, 1), targets = numbers({ 6, 5 }, 1) }))
    assert.matches("Trainer:step: argument 2: expected a table %(batch%), got 3", message_of(tr.step, tr, 3))
    local llama = ms.model("llama3-tiny", { device = "cpu", num_layers = 1 })
    local wrong = { input_ids = ms.tensor({ { 1, 5000 } }, { dtype = "int64" }), labels = ms.tensor({ 0 }, { dtype = "int64" }) }
    assert.matches("batch field 'input_ids': expected 0 to 1023, got 5000", message_of(llama.losses, llama, wrong))
    assert.are.equal(0, distance(model, before))
  end)

  it("a field that is no tensor is refused, also one that may be absent", function()
    local llama = ms.model("llama3-tiny", { device = "cpu", num_layers = 1 })
    local ids = ms.tensor({ { 1, 2 } }, { dtype = "int64" })
    local given = { input_ids = ids, labels = ms.tensor({ 0 }, { dtype = "int64" }), attention_mask = { { 1, 0 } } }
    assert.matches("batch field 'attention_mask': expected a Tensor", message_of(llama.losses, llama, given))
  end)

  it("images given to a model of vectors are an error or samples, never the end of the process", function()
    local result = support.run_lua [[
      local ms = require "moonshard"
      local model = ms.model("linear-tiny", { device = "cpu", hidden_dim = 4, num_layers = 1 })
      local x = ms.ones { 2, 3, 4, 4 }
      local ok, report = pcall(function() return ms.trainer({ model = model }):step { inputs = x, targets = x } end)
      assert(not ok or report.tokens > 0, "a step of no tokens")]]
    assert.are.equal(0, result.code, result.err)
  end)

  it("an empty batch is noise alone, where the denominator is known", function()
    local empty = { inputs = ms.zeros({ 0, 6 }, wide), targets = ms.zeros({ 0, 6 }, wide) }
    local model = linear()
    local tr = trainer(model)
    assert.matches("expected at least one sample, got an empty batch; give expected_batch_size", message_of(tr.step, tr, empty))
    local noisy = trainer(model, { clip = ms.clip("flash", { noise_multiplier = 1 }), expected_batch_size = 4 })
    local report = noisy:step(empty)
    assert.are.equal(0, report.batch_size)
    assert.are.same({}, report.norms)
    assert.is_true(distance(model, linear()) > 0)
  end)
end)

describe("trainer options", function()
  it("accumulation gives the weights of one large batch", function()
    local whole, parts, more = linear(), linear(), linear()
    local report = trainer(whole):step(batch)
    local in_parts = trainer(parts, { grad_accum = 3 }):step(batch)
    trainer(more, { grad_accum = 20 }):step(batch) -- some parts are empty
    assert.is_true(distance(whole, parts) < 1e-14)
    assert.is_true(distance(whole, more) < 1e-14)
    assert.are.equal(6, in_parts.batch_size)
    for i, norm in ipairs(report.norms) do assert.is_true(math.abs(norm - in_parts.norms[i]) < 1e-12) end
  end)

  it("accumulation takes so many batches of the data", function()
    local report = trainer(linear(), { grad_accum = 3, data = ms.data.synthetic { batch_size = 4 } }):step()
    assert.are.equal(12, report.batch_size)
    assert.are.equal(12, #report.norms)
  end)

  it("expected_batch_size is what the sum is divided by", function()
    local one, half = linear(), linear()
    local start = linear()
    trainer(one):step(batch)
    trainer(half, { expected_batch_size = 12 }):step(batch)
    for _, name in ipairs(one.parameters) do
      local moved = one:parameter(name) - start:parameter(name)
      local moved_half = half:parameter(name) - start:parameter(name)
      assert.is_true((moved - 2 * moved_half):abs():max():item() < 1e-14)
    end
  end)

  it("deterministic steps repeat bit for bit", function()
    local function losses()
      local model = ms.model("llama3.2-tiny", { task = "lm", device = "cpu", num_layers = 1 })
      local tr = trainer(model, { deterministic = true, data = ms.data.synthetic { batch_size = 2, seq_length = 8 } })
      return { tr:step().loss, tr:step().loss, tr:step().loss }
    end
    assert.are.same(losses(), losses())
  end)

  it("record_layers puts each layer's norms into the report", function()
    assert.is_nil(trainer(linear()):step(batch).layers)
    local report = trainer(linear(), { record_layers = true }):step(batch)
    assert.are.equal(2, #report.layers)
    local names = {}
    for i, layer in ipairs(report.layers) do names[i] = layer.layer end
    table.sort(names)
    assert.are.same({ "layers.0", "layers.1" }, names)
    for b = 1, 6 do
      local squares = 0
      for _, layer in ipairs(report.layers) do squares = squares + layer.norms[b] ^ 2 end
      assert.is_true(math.abs(math.sqrt(squares) - report.norms[b]) < 1e-12)
    end
  end)

  it("mistakes are named", function()
    local model = linear()
    assert.matches("unknown option 'grad_acum'; did you mean 'grad_accum'%?", message_of(ms.trainer, { model = model, grad_acum = 2 }))
    assert.matches("option 'grad_accum': expected an integer from 1 to 1000000, got 0",
      message_of(ms.trainer, { model = model, grad_accum = 0 }))
    assert.matches("option 'deterministic': expected", message_of(ms.trainer, { model = model, deterministic = "yes please" }))
  end)

  it("per-layer clipping reports no common factors; adaptive clipping moves the bound", function()
    local report = trainer(linear(), { clip = ms.clip("flash", { clipping = "per_layer", noise_multiplier = 0 }) }):step(batch)
    assert.are.same({}, report.factors)
    assert.are.equal(6, #report.norms)
    local tr = trainer(linear(), { clip = ms.clip("flash", { clipping = "adaptive", noise_multiplier = 0, max_grad_norm = 1e-3 }) })
    assert.are.equal(1e-3, tr:step(batch).clip_bound)
    assert.is_true(math.abs(tr.clip_bound - 1e-3 * math.exp(0.2 * 0.5)) < 1e-15) -- all samples are above it
  end)

  it("groups of parameters are clipped each to its own bound", function()
    local function clip(groups, more)
      local options = { noise_multiplier = 0, max_grad_norm = 0.2, groups = groups }
      for key, value in pairs(more or {}) do options[key] = value end
      return ms.clip("ghost", options)
    end
    local model, start = linear(), linear()
    local tr = trainer(model, { clip = clip { { match = { "*.bias" }, max_grad_norm = 1e-3 }, { match = "*.1.*", max_grad_norm = 2e-3 } },
      optimizer = ms.optim.sgd { lr = 6 } })  -- of the sum: divided by six samples
    assert.is_near(math.sqrt(1e-6 + 4e-6 + 0.04), tr.clip_bound, 1e-15)
    assert.are.same({}, tr:step(batch).factors)
    local moved = {}
    for _, name in ipairs(model.parameters) do
      local group = name:find "bias" and "bias" or name:find "%.1%." and "second" or "rest"
      local change = model:parameter(name) - start:parameter(name)
      moved[group] = (moved[group] or 0) + (change * change):sum():item()
    end
    for group, bound in pairs { bias = 1e-3, second = 2e-3, rest = 0.2 } do
      local length = math.sqrt(moved[group])
      assert.is_true(length <= 6 * bound and length > bound, group .. " " .. length)
    end
    assert.are.equal("*.bias = 0.5; a, b = 1", clip({ { match = "*.bias", max_grad_norm = 0.5 },
      { match = { "a", "b" }, max_grad_norm = 1 } }).clip_groups)
    assert.matches("option 'groups': expected { { match = globs, max_grad_norm = bound }, … }, got",
      message_of(clip, { { match = "*" } }), 1, true)
    assert.matches("expected a bound from 1e-12 to 1e12, got '-1'", message_of(clip, { { match = "*", max_grad_norm = -1 } }), 1, true)
    assert.matches("got 'score.* = 1', which matches none", message_of(trainer, linear(),
      { clip = clip { { match = "score.*", max_grad_norm = 1 } } }), 1, true)
    assert.matches("expected clipping = groups beside it, got flat", message_of(trainer, linear(),
      { clip = clip({ { match = "*", max_grad_norm = 1 } }, { clipping = "flat" }) }), 1, true)
  end)

  it("a sample without a finite gradient is dropped and counted", function()
    local inputs = batch.inputs:tolist()
    inputs[2][1] = 0 / 0
    local model = linear()
    local report = trainer(model):step({ inputs = ms.tensor(inputs, wide), targets = batch.targets })
    assert.are.equal(1, report.dropped)
    assert.are.equal(0, report.factors[2])
    assert.is_true(distance(model, linear()) < 1)
  end)
end)

describe("frozen parameters", function()
  it("stay where they are, take no part in norms, and are listed", function()
    local model, all = linear(), linear()
    assert.are.equal(4, #model.trainable)
    assert.are.equal(2, model:freeze "layers.0.*")
    assert.are.same({ "layers.1.weight", "layers.1.bias" }, model.trainable)
    assert.are.equal(4, #model.parameters)
    local report = trainer(model):step(batch)
    assert.are.equal(0, (model:parameter("layers.0.weight") - linear():parameter("layers.0.weight")):abs():max():item())
    assert.is_true(distance(model, linear()) > 0)
    local whole = trainer(all):step(batch)
    for i, norm in ipairs(report.norms) do assert.is_true(norm < whole.norms[i]) end
  end)

  it("the option frozen does the same when the model is made", function()
    local model = linear { frozen = "layers.0.weight, *.bias" }
    assert.are.same({ "layers.1.weight" }, model.trainable)
    assert.matches("expected globs that match parameters, got 'layer.9%.%*'", message_of(linear, { frozen = "layer.9.*" }))
    assert.matches("expected a glob that matches parameters, got 'zzz'", message_of(model.freeze, model, "zzz"))
  end)

  it("with nothing left to train a private step says so", function()
    local model = linear()
    model:freeze "*"
    local tr = trainer(model)
    assert.matches("trainer: expected at least one trainable parameter, got none", message_of(tr.step, tr, batch))
  end)

  it("model.layers names kinds, parameters and what is trained", function()
    local model = ms.model("llama3.2-tiny", { task = "lm", device = "cpu", num_layers = 1, frozen = "model.norm.weight" })
    local by_name = {}
    for _, layer in ipairs(model.layers) do by_name[layer.name] = layer end
    assert.are.same({ name = "model.embed_tokens", kind = "embedding", weight = "model.embed_tokens.weight", trainable = true },
      by_name["model.embed_tokens"])
    assert.are.equal("model.embed_tokens.weight", by_name.lm_head.weight) -- tied
    assert.is_false(by_name["model.norm"].trainable)
    assert.are.equal("rms_norm", by_name["model.norm"].kind)
    assert.are.equal("layers.0.bias", linear().layers[1].bias)
  end)
end)

describe("optimizers", function()
  it("adam's first step moves every parameter by lr, whatever its gradient", function()
    local model = linear()
    trainer(model, { optimizer = ms.optim.adam { lr = 0.01 } }):step(batch)
    local start = linear()
    for _, name in ipairs(model.parameters) do
      local moved = (model:parameter(name) - start:parameter(name)):abs()
      assert.is_true(math.abs(moved:max():item() - 0.01) < 1e-5 and math.abs(moved:min():item() - 0.01) < 1e-5, name)
    end
  end)

  it("adam and adamw differ by their weight decay alone", function()
    local adam, adamw, decayed = linear(), linear(), linear()
    trainer(adam, { optimizer = ms.optim.adam { lr = 0.01 } }):step(batch)
    trainer(adamw, { optimizer = ms.optim.adamw { lr = 0.01, weight_decay = 0 } }):step(batch)
    trainer(decayed, { optimizer = ms.optim.adamw { lr = 0.01, weight_decay = 0.5 } }):step(batch)
    assert.are.equal(0, distance(adam, adamw))
    assert.is_true(distance(adam, decayed) > 1e-4)
    assert.matches("unknown option 'optimizer'", message_of(ms.optim.adam, { optimizer = "sgd" }))
    assert.matches("unknown option 'bta1'; did you mean 'beta1'", message_of(ms.optim.adam, { bta1 = 1 }))
  end)

  it("a schedule warms up and falls to its end; the report says the rate", function()
    local tr = trainer(linear(), { optimizer = ms.optim.sgd { lr = 1, lr_schedule = "linear", lr_warmup_steps = 2, lr_total_steps = 6 } })
    local rates = {}
    for i = 1, 7 do rates[i] = tr:step(batch).lr end
    assert.are.equal(0.5, rates[1])
    assert.are.equal(1, rates[2])
    assert.is_true(rates[3] < 1 and rates[4] < rates[3] and rates[5] < rates[4])
    assert.are.equal(0, rates[6])
    assert.are.equal(0, rates[7])
    assert.matches("lr_total_steps", message_of(trainer, linear(), { optimizer = ms.optim.sgd { lr_schedule = "cosine" } }))
  end)
end)

describe("ms.run", function()
  local function losses(more)
    local options = { model = "llama3-tiny", task = "lm", device = "cpu", mode = "flash", seq_length = 12, batch_size = 2, iters = 3,
      warmup = 1, lr = 0.5, secure = false }
    for key, value in pairs(more or {}) do options[key] = value end
    local record = ms.run(options)
    assert.are.equal("ok", record.status)
    local list = {}
    for i, step in ipairs(record.steps) do list[i] = step.loss end
    return list, record
  end
  local function expect_near(want, got, tolerance, what)
    assert.are.equal(#want, #got)
    for i, loss in ipairs(want) do
      assert.is_true(math.abs(loss - got[i]) <= tolerance * loss, ("%s, step %d: %.9g and %.9g"):format(what, i, loss, got[i]))
    end
  end

  it("a schedule ends with the experiment, and a flat one changes nothing", function()
    local constant = losses()
    local falling, record = losses { lr_schedule = "cosine" }
    assert.are.equal(4, record.options.lr_total_steps)
    assert.are.equal(constant[1], falling[1])
    assert.are_not.equal(constant[4], falling[4])
    assert.are.same(constant, (losses { lr_schedule = "cosine", lr_min_ratio = 1 }))
  end)

  it("checkpointing, attention and formats give the same losses, to their precision", function()
    local want = losses()
    assert.are.same(want, (losses { checkpointing = "block" }))
    assert.are.same(want, (losses { checkpointing = "block", checkpoint_every = 2 }))
    expect_near(want, losses { attention = "standard" }, 1e-5, "standard attention") -- float32, another order of sums
    expect_near(want, losses { dtype = "float64" }, 1e-5, "float64")
    expect_near(want, losses { param_dtype = "bfloat16" }, 1e-2, "bfloat16 computation") -- 8 bits, some hundred roundings
    expect_near(want, losses { mode = "materialize" }, 1e-5, "materialize")
  end)

  it("says what the engine kept and dropped", function()
    local _, record = losses { mode = "bookkeeping" }
    assert.is_true(record.metrics.engine_kept_bytes > 0)
    assert.are.equal(0, record.metrics.dropped_samples)
    local _, flash = losses { mode = "flash" }
    assert.is_true(flash.metrics.engine_kept_bytes < record.metrics.engine_kept_bytes)
  end)
end)

describe("a saved model", function()
  local folder
  before_each(function() folder = support.temporary_folder() end)
  after_each(function() support.remove(folder) end)

  it("is opened by the folder's name with its weights and family", function()
    for _, name in ipairs { "llama3.2-tiny", "qwen1.5-tiny", "dit-tiny", "linear-tiny" } do
      local path = folder .. "/" .. name
      local model = ms.model(name, { device = "cpu", num_layers = 1, seed = 5 })
      local files = model:save(path)
      assert.is_true(#files >= 1 and support.exists(path .. "/config.json") and support.exists(path .. "/model.safetensors"))
      local again = ms.model(path, { device = "cpu", task = model.options.task })
      assert.are.same(model.parameters, again.parameters)
      assert.are.equal(0, distance(model, again))
      assert.are.equal(path, again.options.weights)
      local input = ms.data.synthetic({ model = model, batch_size = 2, seq_length = 6 }):next()
      assert.are.same(model:losses(input):tolist(), again:losses(input):tolist())
    end
  end)

  it("goes on training where it stopped", function()
    local model = linear()
    trainer(model):step(batch)
    model:save(folder .. "/m")
    local again = ms.model(folder .. "/m", { device = "cpu", dtype = "float64" })
    assert.are.equal(0, distance(model, again))
    trainer(model):step(batch)
    trainer(again):step(batch)
    assert.are.equal(0, distance(model, again))
    local record = ms.run { model = folder .. "/m", device = "cpu", iters = 1, warmup = 0, batch_size = 2, mode = "auto" }
    assert.are.equal("ok", record.status)
  end)

  it("a folder that cannot be written and a name that is none say so", function()
    local model = linear()
    support.write(folder .. "/file", "x")
    assert.matches("cannot make the folder", message_of(model.save, model, folder .. "/file"))
    assert.matches("Model:save: argument 2: expected a text", message_of(model.save, model))
    assert.matches("which does not exist", message_of(ms.model, folder .. "/none"))
  end)

  it("a path that is not there is an error, also when its last name is a preset's", function()
    assert.matches(folder, message_of(ms.resolve, { model = folder .. "/Llama-3.2-1B-Instruct" }), 1, true)
    assert.matches("./linear-tiny", message_of(ms.resolve, { model = "./linear-tiny" }), 1, true)
  end)
end)
