--- ms.evaluate against figures counted by hand, on one rank and on two; Trainer:fit: curve, early stop, best checkpoint, what a kill
-- leaves; noised evaluations and their account.
local support = require "tests.support.support"
local ms = require "moonshard"
local lists = require "moonshard.lists"
local reviews = dofile "examples/corpus/reviews.lua"

local folder
before_each(function() folder = support.memory_folder() end)
after_each(function() support.remove(folder) end)

local program = support.run_program

local function classifier(more)
  local tokenizer, file = folder .. "/tokenizer.json", folder .. "/reviews.jsonl"
  reviews.write(file, 120, 1)
  reviews.write_tokenizer(tokenizer)
  local model = ms.model("llama3-tiny", { task = "classify", num_labels = 3, vocab_size = ms.tokenizer(tokenizer):vocab_size(),
    hidden_dim = 16, intermediate_dim = 32, num_layers = 1, device = "cpu", seed = 3 })
  local data = ms.data.classification { file = file, tokenizer = tokenizer, max_length = 24, model = model }
  local parts = { model = model, optimizer = ms.optim.adam { lr = 3e-3 },
    data = ms.data.loader { dataset = data, sampler = "shuffled", batch_size = 16 } }
  for key, value in pairs(more or {}) do parts[key] = type(value) == "function" and value(data) or value end
  return ms.trainer(parts), data, model
end

local function private(budget)
  return { clip = ms.clip("auto", { max_grad_norm = 1, noise_multiplier = 1 }), privacy = budget,
    data = function(data) return ms.data.loader { dataset = data, sampler = "poisson", batch_size = 64, expected_batch_size = 12 } end }
end

--- Predictions and losses one sample at a time.
local function counted(model, data)
  local cells, loss, classes = {}, 0, 3
  for i = 1, classes do cells[i] = { 0, 0, 0 } end
  for i = 1, data:size() do
    local batch = data:batch { i }
    local scores, label = model:forward(batch):tolist()[1], batch.labels:tolist()[1] + 1
    local best = 1
    for c = 2, classes do if scores[c] > scores[best] then best = c end end
    cells[label][best] = cells[label][best] + 1
    loss = loss + model:losses(batch):tolist()[1]
  end
  return cells, loss / data:size()
end

describe("ms.evaluate", function()
  it("gives accuracy, F1 and loss of a classifier as counted by hand, also with a last batch that is not full", function()
    local trainer, data, model = classifier()
    for _ = 1, 4 do trainer:step() end
    local cells, loss = counted(model, data)
    local result = ms.evaluate(model, data, { batch_size = 7 })
    assert.are.same(cells, result.confusion)
    assert.is_near(loss, result.loss, 1e-6)
    local right, f1, occurring, n = 0, 0, 0, data:size()
    for c = 1, 3 do
      local count, predicted = 0, 0
      for other = 1, 3 do count, predicted = count + cells[c][other], predicted + cells[other][c] end
      right = right + cells[c][c]
      local own = count + predicted > 0 and 2 * cells[c][c] / (count + predicted) or 0
      assert.are.same({ count, predicted }, { result.classes[c].count, result.classes[c].predicted })
      assert.is_near(own, result.classes[c].f1, 1e-12)
      if count + predicted > 0 then f1, occurring = f1 + own, occurring + 1 end
    end
    assert.is_near(right / n, result.accuracy, 1e-12)
    assert.is_near(f1 / occurring, result.macro_f1, 1e-12)
    local z, p = 1.959963984540054, right / n
    local half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert.is_near((p + z * z / (2 * n)) / (1 + z * z / n) - half, result.intervals.accuracy.low, 1e-9)
    assert.is_true(result.intervals.loss.low < loss and loss < result.intervals.loss.high)
    assert.are.same({ "blame", "praise" }, { result.classes[1].label, result.classes[2].label })
    assert.matches("not private: exact figures", result.privacy)
    assert.matches("class +samples", tostring(result))
    assert.is_nil(ms.evaluate(model, data, { intervals = false }).intervals)
    assert.has_error(function() ms.evaluate(model, 3) end)
    local _, message = pcall(ms.evaluate, model, data, { bach_size = 3 })
    assert.matches("did you mean 'batch_size'", message)
  end)

  it("gives perplexity per token, and mean losses of batches", function()
    support.run(("mkdir %s/text"):format(folder))
    for i = 1, 7 do support.write(("%s/text/%d.txt"):format(folder, i), ("abc def "):rep(i) .. "end") end
    local model = ms.model("llama3-tiny", { task = "lm", vocab_size = 300, hidden_dim = 16, intermediate_dim = 32, num_layers = 1,
      device = "cpu" })
    local data = ms.data.text { folder = folder .. "/text", max_length = 40, packing = "padded", cache = "none", model = model }
    local sum, tokens = 0, 0
    for i = 1, data:size() do
      local batch, count = data:batch { i }, 0
      for _, label in ipairs(batch.labels:tolist()[1]) do count = count + (label == -100 and 0 or 1) end
      sum, tokens = sum + count * model:losses(batch):tolist()[1], tokens + count
    end
    local result = ms.evaluate(model, data, { batch_size = 3 })
    assert.are.same({ data:size(), tokens }, { result.samples, result.tokens })
    assert.is_near(math.exp(sum / tokens), result.perplexity, 1e-3)
    assert.is_true(result.intervals.perplexity.low <= result.perplexity)
    local linear = ms.model("linear-tiny", { hidden_dim = 6, num_layers = 2, device = "cpu" })
    local source = ms.data.synthetic { model = linear, batch_size = 5 }
    local batches, total = { source:next(), source:next() }, 0
    for _, batch in ipairs(batches) do total = total + linear:losses(batch):sum():item() end
    assert.is_near(total / 10, ms.evaluate(linear, batches).loss, 1e-6)
  end)

  it("is the same on two ranks with parameters in parts, and so are steps with a clipped global norm", function()
    local trainer, data = classifier()
    local file = folder .. "/ranks.lua"
    support.write(file, ([[
      local ms = require "moonshard"
      local ranks = ms.dist.world()
      local model = ms.model("llama3-tiny", { task = "classify", num_labels = 3, vocab_size = %d, hidden_dim = 16, intermediate_dim = 32,
        num_layers = 2, device = "cpu", seed = 3, dtype = "float64" })
      local data = ms.data.classification { file = "%s/reviews.jsonl", tokenizer = "%s/tokenizer.json", max_length = 24, model = model }
      local trainer = ms.trainer { model = model, parallel = ranks > 1 and ms.fsdp { sharding = "zero3" } or nil, clip_global_norm = 0.05,
        optimizer = ms.optim.sgd { lr = 1 }, data = ms.data.loader { dataset = data, batch_size = 12 / ranks } }
      local norms = {}
      for i = 1, 3 do norms[i] = ("%%.9f"):format(trainer:step().grad_norm) end
      local result = ms.evaluate(trainer, data, { batch_size = 16 })
      trainer:step()
      if ms.dist.rank() ~= 0 then return end
      print(table.concat(norms, " "), ("%%d %%.9f %%.9f"):format(result.samples, result.loss, result.accuracy))
    ]]):format(trainer.model.options.vocab_size, folder, folder))
    assert.are.equal(120, data:size())
    local one, two = program("run " .. file), program("run --nproc 2 " .. file)
    assert.are.equal(0, one.code, one.err)
    assert.are.equal(0, two.code, two.err)
    assert.matches("^%d.*120 %d", one.out)
    assert.are.equal(one.out, two.out:match("[^\n]*120 [^\n]*\n"))
  end)

  it("noises and charges what is released of private data, and refuses what the budget has no room for", function()
    local trainer, data = classifier(private { delta = 1e-5 })
    trainer:step()
    local before = trainer:privacy().epsilon
    local result = ms.evaluate(trainer, data, { noise_multiplier = 4, intervals = false })
    assert.is_true(result.private)
    assert.matches("noised and charged", result.privacy)
    assert.is_near(4 * math.sqrt(2) * math.sqrt(3) / 120, result.noise.accuracy, 1e-12)
    local spent = trainer:privacy()
    assert.are.same({ { 1, 1 }, { 4, 1 } }, lists.map(spent.history, function(phase) return { phase.sigma, phase.steps } end))
    assert.are.equal(1, spent.history[2].q)
    assert.is_true(spent.epsilon > before)
    local phases = { { q = spent.history[1].q, sigma = 1, steps = 1 }, { q = 1, sigma = 4, steps = 1 } }
    assert.is_near(ms.privacy.epsilon { method = "pld", delta = 1e-5, phases = phases }.epsilon, spent.epsilon, 1e-9)
    assert.matches("not private: exact figures of the samples, which the epsilon", ms.evaluate(trainer, data).privacy)
    assert.matches("public", ms.evaluate(trainer, data, { public = true }).privacy)
    local planned = classifier(private { delta = 1e-5, target_epsilon = 4, budget_steps = 3, releases = 1, release_noise = 3 })
    local plain = classifier(private { delta = 1e-5, target_epsilon = 4, budget_steps = 3 })
    assert.is_true(planned.noise_multiplier > plain.noise_multiplier)
    for _ = 1, 2 do planned:step() end
    ms.evaluate(planned, data, { noise_multiplier = 3 })
    planned:step()
    assert.is_true(planned:privacy().epsilon <= 4)
    local _, message = pcall(ms.evaluate, planned, data, { noise_multiplier = 3 })
    assert.matches("expected a release within the budget of epsilon 4", message)
    _, message = pcall(ms.evaluate, plain, data, { noise_multiplier = 1 })
    assert.matches("plan for it", message)
    _, message = pcall(ms.evaluate, classifier(), data, { noise_multiplier = 1 })
    assert.matches("expected a trainer with a private engine", message)
  end)
end)

describe("Trainer:fit", function()
  it("evaluates, keeps the best checkpoint and writes a curve that loads and passes the doctor", function()
    local trainer, data = classifier()
    local seen, judged = {}, {}
    local fit = trainer:fit { epochs = 1.5, evaluate = data, evaluate_every = 5, metric = "accuracy", best = folder .. "/best",
      out = folder, options = { kind = "a" }, progress = false, on_step = function(report) seen[#seen + 1] = report.step end,
      on_evaluate = function(result, step) judged[#judged + 1] = { step, result.accuracy } end }
    assert.are.same({ 12, "done", 12 }, { fit.steps, fit.stopped, #seen })
    assert.are.same({ 5, 10, 12 }, lists.map(judged, function(each) return each[1] end))
    local best = judged[1]
    for _, each in ipairs(judged) do if each[2] > best[2] then best = each end end
    assert.are.same(best, { fit.best.step, fit.best.value })
    assert.are.equal(best[1], (classifier():resume(fit.best.path)))
    local point = ms.load(fit.folder)[1]
    local steps = point.result.steps
    assert.are.equal(12, #steps)
    assert.are.same({ judged[2][2], nil }, { steps[10].accuracy, steps[9].accuracy })
    assert.are.equal(3e-3, steps[1].lr)
    assert.are.equal(judged[3][2], point.metrics.accuracy)
    assert.matches("plain training", point.result.privacy.why_no_epsilon)
    local checked = program("doctor " .. fit.folder)
    assert.are.equal(0, checked.code, checked.out)
  end)

  it("stops early, when a callback says so, and refuses what it cannot do", function()
    local trainer, data = classifier { optimizer = ms.optim.sgd { lr = 0 } }
    local fit = trainer:fit { steps = 50, evaluate = data, evaluate_every = 2, patience = 3, log = false, progress = false }
    assert.are.same({ 8, "patience", 2 }, { fit.steps, fit.stopped, fit.best.step })
    assert.is_nil(fit.folder)
    fit = trainer:fit { steps = 50, log = false, progress = false, on_step = function(report) return report.step < 10 end }
    assert.are.same({ 10, "on_step" }, { fit.steps, fit.stopped })
    for wanted, options in pairs { ["expected epochs or steps, got both"] = { epochs = 1, steps = 2 },
      ["expected epochs or steps, got neither"] = {}, ["did you mean 'epochs'"] = { epoch = 1 },
      ["expected a dataset beside it"] = { steps = 1, patience = 2 },
      ["option 'metric'"] = { steps = 1, evaluate = data, metric = "f1" } } do
      local _, message = pcall(trainer.fit, trainer, options)
      assert.matches(wanted, message, 1, true)
    end
  end)

  it("leaves a curve without gaps and repetitions after kills", function()
    classifier()
    local file = folder .. "/killed.lua"
    support.write(file, ([[
      local ms = require "moonshard"
      local model = ms.model("llama3-tiny", { task = "classify", num_labels = 3,
        vocab_size = ms.tokenizer("%s/tokenizer.json"):vocab_size(), hidden_dim = 16, intermediate_dim = 32,
        num_layers = 1, device = "cpu", seed = 3 })
      local data = ms.data.classification { file = "%s/reviews.jsonl", tokenizer = "%s/tokenizer.json", max_length = 24, model = model }
      local trainer = ms.trainer { model = model, data = ms.data.loader { dataset = data, batch_size = 8 } }
      trainer:durable("%s/run", { every = 2, wait = true })
      local function stop(at) if at == arg[1] then os.execute "kill -9 $PPID" end end
      trainer:fit { steps = 12, evaluate = data, evaluate_every = 4, on_step = function(report) stop("step " .. report.step) end,
        on_evaluate = function(_, step) stop("evaluation " .. step) end }
    ]]):format(folder, folder, folder, folder))
    for _, at in ipairs { "step 5", "step 8", "evaluation 8", "step 11" } do
      assert.are_not.equal(0, program(("run %s '%s'"):format(file, at)).code)
    end
    local last = program("run " .. file)
    assert.are.equal(0, last.code, last.err)
    local found = support.run(("ls -d %s/run/run_*"):format(folder)).out
    local runs = ms.load((found:gsub("\n$", "")))
    local steps = runs[1].result.steps
    assert.are.equal("ok", runs[1].status)
    assert.are.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, lists.column(steps, "step"))
    for _, row in ipairs(steps) do
      assert.are.equal(row.step % 4 == 0, row.accuracy ~= nil, "step " .. row.step)
      assert.is_number(row.loss)
    end
  end)
end)
