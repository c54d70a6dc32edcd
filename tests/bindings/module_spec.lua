--- The module as a whole: loading, documentation, options, experiments, the trainer.
local support = require "tests.support.support"
local ms = require "moonshard"

local message_of = support.message_of

local function tiny(more)
  local options = { model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 2, batch_size = 4, iters = 2, warmup = 1 }
  for key, value in pairs(more or {}) do options[key] = value end
  return options
end

describe("the module", function()
  it("loads in a plain luajit", function()
    local result = support.run_lua [[local ms = require "moonshard" io.write(ms.version, " ", tostring(package.loaded.moonshard == ms))]]
    assert.are.equal(0, result.code, result.err)
    assert.matches("^%d+%.%d+%.%d+ true$", result.out)
  end)

  it("sets no globals that a script could name", function()
    local result = support.run_lua [[
      local before = {}
      for key in pairs(_G) do before[key] = true end
      require "moonshard"
      for key in pairs(_G) do if not before[key] and not key:match("^sol%.") then io.write(key, " ") end end]]
    assert.are.equal("", result.out)
  end)

  it("closes its state without complaint while objects are alive", function()
    local result = support.run_lua [[
      local ms = require "moonshard"
      model = ms.model("linear-tiny", { hidden_dim = 8, num_layers = 1 })
      trainer = ms.trainer { model = model }
      tensor = ms.ones { 3 }
      trainer:step()]]
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("", result.err)
  end)

  it("leaves package.path and package.cpath as they are, and a host's own modules are found", function()
    local folder = support.temporary_folder()
    finally(function() support.remove(folder) end)
    for _, name in ipairs { "analyze", "plot", "sweep", "studies" } do
      support.write(("%s/%s.lua"):format(folder, name), ("return \"the host's %s\""):format(name))
    end
    local result = support.run_lua(([[
      local none = {}
      for _, name in ipairs { "analyze", "plot", "sweep", "studies" } do none[name] = not pcall(require, name) end
      package.path = "%s/?.lua;" .. package.path
      local path, cpath = package.path, package.cpath
      require "moonshard"
      assert(package.path == path and package.cpath == cpath)
      for _, name in ipairs { "analyze", "plot", "sweep", "studies" } do
        assert(none[name], name)
        print(require(name))
      end]]):format(folder))
    assert.are.equal("the host's analyze\nthe host's plot\nthe host's sweep\nthe host's studies\n", result.out, result.err)
  end)

  it("is found by require as moonshard.*, and nothing else of it is", function()
    local result = support.run_lua [[
      require "moonshard"
      local loaders = #package.loaders
      print(type(require "moonshard.text_table"), type(require "moonshard.cli.sweep"))
      package.loaded.moonshard = nil
      require "moonshard"
      print(#package.loaders == loaders)
      for _, name in ipairs { "text_table", "studies.fsdp_linear", "moonshardx", "moonshard.nothing" } do
        local ok, message = pcall(require, name)
        print(ok, name, message:find("share/moonshard/scripts/", 1, true) ~= nil)
      end]]
    assert.are.equal("table\ttable\ntrue\nfalse\ttext_table\tfalse\nfalse\tstudies.fsdp_linear\tfalse\n"
      .. "false\tmoonshardx\tfalse\nfalse\tmoonshard.nothing\ttrue\n", result.out, result.err)
  end)

  it("says what is missing when its Lua library is not there", function()
    local folder = support.temporary_folder()
    finally(function() support.remove(folder) end)
    local source = [[print(pcall(require, "moonshard"))]]
    local result = support.run_lua(source, { environment = { MOONSHARD_PREFIX = folder } })
    assert.matches(('require "moonshard": expected the Lua library in %s/share/moonshard/scripts'):format(folder), result.out, 1, true)
  end)

  it("has a version and LibTorch's", function()
    assert.matches("^%d+%.%d+%.%d+$", ms.version)
    assert.matches("^%d+%.%d+", ms.libtorch_version)
  end)

  it("describes the machine", function()
    local machine = ms.machine()
    assert.are.equal(ms.version, machine.moonshard)
    assert.is_true(machine.cores >= 1)
    assert.is_true(machine.memory_bytes > 2 ^ 28)
  end)
end)

describe("documentation", function()
  local function check(prefix, functions)
    for name, value in pairs(functions) do
      if type(value) == "function" then
        local doc = ms.doc_of(value)
        assert.is_not_nil(doc, prefix .. name .. " has no documentation")
        assert.are.equal(prefix .. name, doc.name)
        assert.are.equal(prefix .. name, doc.signature:sub(1, #prefix + #name))
        assert.is_true(#doc.signature > #prefix + #name, doc.signature)
        assert.is_true(#doc.text > 4, prefix .. name)
      end
    end
  end

  it("every public function has a signature and a text", function()
    check("ms.", ms)
    check("ms.optim.", ms.optim)
    check("ms.data.", ms.data)
    check("ms.weights.", ms.weights)
  end)

  it("the native tables' functions have one, too", function()
    local native = package.loaded["moonshard.native"]
    check("records.", native.records)
    check("launch.", native.launch)
  end)

  it("methods have one", function()
    local tensor = ms.ones { 1 }
    assert.matches("^Tensor:reshape", ms.doc_of(tensor.reshape).signature)
    local model = ms.model("linear-tiny", { hidden_dim = 8, num_layers = 1 })
    assert.matches("^Model:losses", ms.doc_of(model.losses).signature)
  end)

  it("nothing is known of other values", function()
    assert.is_nil(ms.doc_of(print))
    assert.is_nil(ms.doc_of(nil))
    assert.is_nil(ms.doc_of(1))
  end)

  it("users document their own functions", function()
    local mine = function() end
    ms.document(mine, "mine", "mine() -> nothing", "Does nothing.")
    assert.are.same({ name = "mine", signature = "mine() -> nothing", text = "Does nothing." }, ms.doc_of(mine))
    assert.matches("ms.document: argument 1: expected a function, a table or a name, got 1", message_of(ms.document, 1, "a", "b", "c"))
    ms.document("mine.limit", "mine.limit", "mine.limit: number", "What has no value of its own.")
    assert.are.equal("mine.limit: number", ms.doc_of("mine.limit").signature)
  end)
end)

describe("experiment options", function()
  it("options and option_names agree", function()
    local names = ms.option_names()
    local options = ms.options()
    assert.are.equal(#names, #options)
    for i, option in ipairs(options) do
      assert.are.equal(names[i], option.name)
      assert.is_true(#option.doc > 0, option.name)
      assert.is_true(#option.type > 0, option.name)
      assert.is_not_nil(option.default, option.name)
    end
  end)

  it("every option has a default that resolves", function()
    local resolved = ms.resolve({}).options
    assert.are.same(#ms.option_names(), #support.keys(resolved))
    for _, name in ipairs(ms.option_names()) do assert.is_not_nil(resolved[name], name) end
  end)

  it("defaults are the seeds'", function()
    local options = ms.resolve({}).options
    assert.are.equal(3, options.iters)
    assert.are.equal(1, options.warmup)
    assert.are.equal(1, options.noise_multiplier)
    assert.are.equal(1, options.max_grad_norm)
    assert.are.equal(1e-5, options.lr)
    assert.are.equal(3, options.num_labels)
    assert.are.equal(2, options.batch_size)
  end)

  it("the seeds' spellings work", function()
    local options = ms.resolve({ sigma = 0.5, learning_rate = 0.25, num_iter = 7, warmup_iter = 2, mode = "no_dp", dtype = "bf16",
      model_name = "linear-tiny", ["batch-size"] = 4 }).options
    assert.are.equal(0.5, options.noise_multiplier)
    assert.are.equal(0.25, options.lr)
    assert.are.equal(7, options.iters)
    assert.are.equal(2, options.warmup)
    assert.are.equal("none", options.mode)
    assert.are.equal("bfloat16", options.dtype)
    assert.are.equal("linear-tiny", options.model)
    assert.are.equal(4, options.batch_size)
  end)

  it("two spellings of one option are refused", function()
    assert.matches("lr", message_of(ms.resolve, { lr = 1, learning_rate = 2 }))
  end)

  it("the id depends on the effective options only", function()
    assert.are.equal(ms.resolve({}).id, ms.resolve({ iters = 3 }).id)
    assert.are.equal(ms.resolve({ sigma = 2 }).id, ms.resolve({ noise_multiplier = 2 }).id)
    assert.are_not.equal(ms.resolve({}).id, ms.resolve({ iters = 4 }).id)
    assert.matches("^%x+$", ms.resolve({}).id)
  end)

  it("an unknown key names the nearest and all", function()
    local message = message_of(ms.resolve, { max_grad_nrom = 1 })
    assert.matches("experiment: unknown option 'max_grad_nrom'; did you mean 'max_grad_norm'? known: model, task, ", message, 1, true)
    for _, name in ipairs(ms.option_names()) do assert.matches(name, message, 1, true) end
  end)

  it("a wrong type is named with the value and the option's meaning", function()
    local message = message_of(ms.resolve, { iters = "three" })
    assert.matches("experiment: option 'iters': expected an integer, got 'three'; measured steps", message)
    assert.matches("experiment: option 'iters': expected an integer.*, got 1.5", message_of(ms.resolve, { iters = 1.5 }))
    assert.matches("experiment: option 'lr': expected a finite number, got", message_of(ms.resolve, { lr = 0 / 0 }))
    assert.matches("experiment: option 'lr': expected a finite number, got", message_of(ms.resolve, { lr = math.huge }))
    assert.matches("experiment: option 'model': expected a text, got 5", message_of(ms.resolve, { model = 5 }))
    assert.matches("experiment: option 'mode': expected one of .*, got true", message_of(ms.resolve, { mode = true }))
    assert.matches("expected a table of named options, got array", message_of(ms.resolve, { 1, 2 }))
    assert.matches("ms.resolve: argument 1: expected a table of options, got 'x'", message_of(ms.resolve, "x"))
  end)

  it("a value out of range is named with the range", function()
    assert.matches("experiment: option 'iters': expected an integer from 1 to 1000000000, got 0", message_of(ms.resolve, { iters = 0 }))
    assert.matches("experiment: option 'noise_multiplier': expected a number from 0 to 1000000, got %-1",
      message_of(ms.resolve, { sigma = -1 }))
    assert.matches("experiment: option 'batch_size': expected an integer from 0 to", message_of(ms.resolve, { batch_size = -1 }))
  end)

  it("a bad choice names the choices and the nearest", function()
    assert.matches("experiment: option 'mode': expected one of none, materialize.*, got 'materialise'; did you mean 'materialize'?",
      message_of(ms.resolve, { mode = "materialise" }))
    assert.matches("model: expected one of .*, got 'linear%-tyni'; did you mean 'linear%-tiny'?",
      message_of(ms.resolve, { model = "linear-tyni" }))
  end)

  it("a seed beyond 2^53 is kept whole or refused", function()
    local ok, resolved = pcall(ms.resolve, { seed = 9007199254740993LL })
    if ok then assert.are.equal("9007199254740993LL", tostring(resolved.options.seed)) end
  end)

  it("the caller's table is not written to", function()
    local given = { sigma = 1 }
    ms.resolve(given)
    assert.are.same({ sigma = 1 }, given)
  end)
end)

describe("ms.run", function()
  it("returns a record with all its parts", function()
    local record = ms.run(tiny { mode = "materialize" })
    assert.are.equal("ok", record.status)
    for _, key in ipairs { "options", "metrics", "time", "steps", "memory_stages", "privacy" } do
      assert.are.equal("table", type(record[key]), key)
    end
    assert.are.equal(3, #record.steps)
    assert.is_true(record.steps[1].warmup)
    assert.is_false(record.steps[2].warmup)
    assert.are.equal(2, record.time.step_ms.count)
    assert.is_true(record.privacy.private_engine)
    assert.is_nil(record.privacy.epsilon)
    assert.is_true(#record.privacy.why_no_epsilon > 0)
    assert.is_true(record.metrics.peak_memory_bytes > 0)
    assert.are.equal(record.metrics.peak_memory_bytes / 2 ^ 20, record.metrics.peak_memory_mb)
    assert.are.equal(record.metrics.peak_memory_bytes / 2 ^ 30, record.metrics.peak_memory_gb)
    assert.are.equal(2 * (16 * 16 + 16), record.metrics.num_parameters)
  end)

  it("out of memory is a status with a reason, and the next run works", function()
    local record = ms.run { model = "linear-tiny", device = "cpu", batch_size = 4096, iters = 1, warmup = 0, memory_limit_mb = 1 }
    assert.are.equal("oom", record.status)
    assert.matches("memory: tried to allocate %d+ bytes, %d+ of 1048576 %(memory_limit_mb%) are in use", record.error)
    assert.is_true(record.bytes_asked > 0)
    assert.are.equal("ok", ms.run(tiny()).status)
    assert.are.equal(2 ^ 20, ms.zeros({ 2 ^ 20 }).numel) -- the limit is gone
  end)

  it("the same seed gives the same losses bit for bit and another does not", function()
    local function losses(seed)
      local list = {}
      local record = ms.run(tiny { seed = seed, mode = "materialize", secure = false, lr = 0.1, iters = 4 })
      for i, step in ipairs(record.steps) do list[i] = step.loss end
      return list
    end
    assert.are.same(losses(3), losses(3))
    assert.are_not.same(losses(3), losses(4))
  end)

  it("a mistake in the options raises before any work", function()
    assert.matches("experiment: unknown option 'itres'; did you mean 'iters'?", message_of(ms.run, { itres = 1 }), 1, true)
    assert.matches("device", message_of(ms.run, { device = "gpu" }))
  end)
end)

describe("the trainer", function()
  local model
  before_each(function() model = ms.model("linear-tiny", { device = "cpu", hidden_dim = 16, num_layers = 2 }) end)
  local function trainer(more)
    local parts = { model = model, data = ms.data.synthetic { batch_size = 4 } }
    for key, value in pairs(more or {}) do parts[key] = value end
    return ms.trainer(parts)
  end

  it("a step reports loss, norms, times and memory", function()
    local report = trainer({ clip = ms.clip("materialize", { max_grad_norm = 0.1 }) }):step()
    assert.are.same({ "batch_size", "clip_bound", "clip_fraction", "dropped", "factors", "kept_bytes", "loss", "lr", "memory", "norms",
      "phases", "privacy_steps", "step", "time_ms", "tokens" }, support.keys(report))
    assert.are.equal(1, report.step)
    assert.are.equal(4, report.batch_size)
    assert.are.equal(4, #report.norms)
    assert.are.equal(1, report.clip_fraction)
    assert.are.equal(0.1, report.clip_bound)
    assert.are.equal(0, report.dropped)
    assert.are.equal(1e-5, report.lr)
    for i, norm in ipairs(report.norms) do assert.is_true(math.abs(report.factors[i] - 0.1 / (norm + 1e-6)) < 1e-12) end
    assert.are.equal(4 * model.bytes, report.kept_bytes) -- four samples' gradients
    assert.is_true(report.time_ms > 0)
    assert.are.same({ "allocated_bytes", "max_allocated_bytes", "reserved_bytes", "rss_bytes" }, support.keys(report.memory))
    local sum = 0
    for _, ms_spent in pairs(report.phases) do sum = sum + ms_spent end
    assert.is_true(math.abs(sum - report.time_ms) < 1e-6 * report.time_ms + 1e-9)
  end)

  it("without clipping there are no norms, no factors and no bound", function()
    local report = trainer():step()
    assert.are.same({}, report.norms)
    assert.are.same({}, report.factors)
    assert.are.equal(0, report.clip_bound)
    assert.are.equal(0, report.kept_bytes)
  end)

  it("steps change the parameters and count up", function()
    local tr = trainer { optimizer = ms.optim.sgd { lr = 0.1 } }
    local name = model.parameters[1]
    local before = model:parameter(name):clone()
    assert.are.equal(1, tr:step().step)
    assert.are.equal(2, tr:step().step)
    assert.is_true((model:parameter(name) - before):abs():max():item() > 0)
  end)

  it("fields and text name the engine", function()
    local tr = trainer { clip = ms.clip "materialize" }
    assert.are.equal("materialize", tr.engine)
    assert.is_true(tr.private)
    assert.are.equal(1, tr.clip_bound)
    assert.are.equal("linear-tiny", tr.model.name)
    assert.are.equal("Trainer of linear-tiny with engine materialize", tostring(tr))
    assert.matches("Trainer: expected a field %(model, engine, private, steps, privacy_steps, planned_steps, steps_per_epoch, "
      .. "noise_multiplier, clip_bound, units%) or a method %(step, fit, generate, privacy, gather, save, finish_save, durable, resume, "
      .. "trace, close%), got 'stpe'",
      message_of(function() return tr.stpe end))
  end)

  it("a closed trainer says so", function()
    local tr = trainer()
    tr:close()
    tr:close()
    assert.are.equal("Trainer (closed)", tostring(tr))
    assert.matches("Trainer:step: expected a trainer, got one that was closed", message_of(tr.step, tr))
    assert.matches("expected a trainer, got one that was closed", message_of(function() return tr.engine end))
  end)

  it("a misspelt part names the nearest; a far one does not name nothing", function()
    assert.matches("trainer: unknown option 'modle'; did you mean 'model'%?", message_of(ms.trainer, { modle = model }))
    local message = message_of(ms.trainer, { model = model, qqqqqqqqqqqq = 1 })
    assert.is_nil(message:find("did you mean ''", 1, true), message)
  end)

  it("wrong parts are refused with what makes a right one", function()
    assert.matches("trainer: option 'model': expected a model, got .*make one with ms.model", message_of(ms.trainer, {}))
    assert.matches("trainer: option 'data': expected a data source, got .*ms.data.synthetic",
      message_of(ms.trainer, { model = model, data = 3 }))
    assert.matches("option 'lr': expected a number from 0 to 1000000, got %-1", message_of(ms.optim.sgd, { lr = -1 }))
    assert.matches("unknown option 'optimizer'", message_of(ms.optim.adamw, { optimizer = "sgd" }))
    assert.matches("clip: option 'mode': expected one of none, materialize", message_of(ms.clip, "gohst"))
    assert.matches("ms.clip: argument 1: expected a text %(engine%), got nothing", message_of(ms.clip))
    assert.matches("did you mean 'model'? known: model, batch_size,", message_of(ms.data.synthetic, { modle = 2 }), 1, true)
    assert.matches("did you mean 'ranks'? known: ranks, model,", message_of(ms.rank_memory, { rank = 2 }), 1, true)
    assert.matches("unknown option 'batch_sizes'; did you mean 'batch_size'", message_of(ms.data.synthetic, { batch_sizes = 2 }))
  end)

  it("a batch is a table of tensors that the model takes", function()
    local data = ms.data.synthetic { model = model, batch_size = 3 }
    local batch = data:next()
    assert.are.same({ 3, 16 }, batch.inputs.shape)
    assert.are.same({ 3 }, model:losses(batch).shape)
    assert.matches("Data:next: expected data that knows its model's shapes", message_of(function() return ms.data.synthetic():next() end))
    assert.matches("Model:losses: batch field 'inputs': expected a Tensor", message_of(model.losses, model, {}))
  end)

  it("a batch that lacks what the task needs is refused by name", function()
    local llama = ms.model("llama3-tiny", { device = "cpu" })
    local batch = ms.data.synthetic({ model = llama, batch_size = 2, seq_length = 4 }):next()
    batch.labels = nil
    assert.matches("labels", message_of(llama.losses, llama, batch))
    batch.labels = 3
    assert.matches("labels", message_of(llama.losses, llama, batch))
  end)

  it("models say what they are and which names they know", function()
    assert.matches("^Model linear%-tiny %(regress, 544 parameters, float32 cpu, 2176 bytes%)$", tostring(model))
    assert.matches("model: expected one of .*, got 'lama3%-tiny'; did you mean 'llama3%-tiny'%?", message_of(ms.model, "lama3-tiny"))
    assert.matches("model 'llama': expected sizes, got none for vocab_size, ", message_of(ms.model, "llama"))
    assert.matches("expected a parameter's name, got 'x'", message_of(model.parameter, model, "x"))
    assert.matches("Model: expected a field .*, got 'nmae'", message_of(function() return model.nmae end))
  end)

  it("data objects refuse unknown fields like the other types do", function()
    local data = ms.data.synthetic()
    assert.is_false((pcall(function() return data.batchsize end)))
  end)
end)

describe("ms.profile", function()
  local function trainer(engine)
    local model = ms.model("linear-tiny", { device = "cpu", hidden_dim = 16, num_layers = 1 })
    return ms.trainer { model = model, clip = ms.clip(engine or "materialize") }
  end

  it("prints the phases, their share, the loss and the peak", function()
    local profile = ms.profile(trainer(), { iters = 3, warmup = 0 })
    assert.are.equal(3, profile.time.count)
    local text = tostring(profile)
    for _, word in ipairs { "forward", "backward", "clip_factors", "clipped_sum", "update", "step", "median ms", "loss", "peak",
      "3 steps after 0" } do
      assert.matches(word, text)
    end
  end)

  it("shows every phase of a step, the second backward pass of ghost and flash too", function()
    for _, engine in ipairs { "ghost", "flash" } do
      local tr = trainer(engine)
      assert.are.same(support.keys(tr:step().phases), support.keys(ms.profile(tr, { iters = 1, warmup = 0 }).phases))
      assert.matches("second_backward", tostring(ms.profile(tr, { iters = 1, warmup = 0 })), 1, true)
    end
  end)

  it("refuses what is not a trainer and counts that are none", function()
    assert.matches("ms.profile: argument 1: expected a Trainer, got a nil; make one with ms.trainer", message_of(ms.profile, nil))
    assert.matches("ms.profile: argument 1: expected a Trainer, got a userdata", message_of(ms.profile, ms.ones { 1 }))
    assert.matches("ms.profile: option 'iters': expected a whole number from 1, got 0", message_of(ms.profile, trainer(), { iters = 0 }))
    assert.matches("ms.profile: option 'warmup': expected a whole number from 0, got x",
      message_of(ms.profile, trainer(), { warmup = "x" }))
    assert.matches("ms.profile: unknown option 'iter'; did you mean 'iters'?", message_of(ms.profile, trainer(), { iter = 1 }), 1, true)
  end)
end)

describe("lists", function()
  it("models have names, sizes and a text", function()
    for _, model in ipairs(ms.models()) do
      assert.is_true(model.num_parameters > 0 and model.parameter_bytes >= model.num_parameters, model.name)
      assert.is_true(#model.doc > 0)
    end
  end)

  it("engines have names, and the suites' words are among their aliases", function()
    local by_name = {}
    for _, engine in ipairs(ms.engines()) do by_name[engine.name] = engine end
    assert.is_false(by_name.none.private)
    assert.is_true(by_name.materialize.private)
    assert.matches("no_dp", table.concat(by_name.none.aliases, " "), 1, true)
  end)
end)
