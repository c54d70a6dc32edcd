--- The program from outside: verbs, flags, exit codes, files, signals.
local support = require "tests.support.support"

local program = support.program()
local quoted = support.shell_quoted(program)
local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local function run(words, options)
  options = options or {}
  options.folder = options.folder or folder
  return support.run(quoted .. " " .. words, options)
end

local tiny = "--model linear-tiny --device cpu --hidden-dim 16 --num-layers 1 --batch-size 4 --iters 1 --warmup 0 --threads 1"
local tiny_lua = [[model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1, batch_size = 4, warmup = 0, threads = 1,
  iters = 1]]

local function script(text)
  support.write(folder .. "/script.lua", text)
  return folder .. "/script.lua"
end

local verbs = { "run", "profile", "sweep", "repl", "view", "plot", "compare", "export", "report", "models", "engines", "verify", "audit",
  "privacy", "doctor", "completion" }

describe("verbs", function()
  it("--help lists them and exits 0", function()
    local result = run("--help")
    assert.are.equal(0, result.code)
    for _, verb in ipairs(verbs) do assert.matches("\n  " .. verb .. " ", result.out, 1, true) end
    assert.matches("Exit codes:", result.out, 1, true)
  end)

  it("--version prints the version", function()
    assert.matches("^moonshard %d+%.%d+%.%d+\n$", run("--version").out)
  end)

  it("none exits 2", function()
    local result = run("")
    assert.are.equal(2, result.code)
    assert.matches("usage: moonshard VERB", result.out .. result.err, 1, true)
  end)

  it("an unknown one names the nearest and exits 2", function()
    local result = run("prfile")
    assert.are.equal(2, result.code)
    assert.matches("expected a verb (moonshard --help lists them), got 'prfile'; did you mean 'profile'?", result.err, 1, true)
  end)

  it("each explains itself with --help", function()
    for _, verb in ipairs(verbs) do
      if verb ~= "view" then -- the viewer is a program of its own
        local result = run(verb .. " --help")
        assert.are.equal(0, result.code, verb .. ": " .. result.err)
        assert.matches("usage: moonshard " .. verb, result.out, 1, true)
      end
    end
  end)

  it("words that a verb does not take, and paths that are not there, are refused", function()
    for _, words in ipairs { "doctor x", "models x", "engines x", "repl x", "verify x", "audit x" } do
      local result = run(words)
      assert.are.equal(2, result.code, words)
      assert.matches("'x'", result.err, 1, true)
    end
  end)
end)

describe("profile", function()
  it("a misspelt option exits 2 with the nearest before any work", function()
    local result = run("profile --batch-szie 4")
    assert.are.equal(2, result.code)
    assert.matches("unknown option 'batch-szie'; did you mean 'batch_size'?", result.err, 1, true)
    assert.are.equal("", result.out)
  end)

  it("a bad value exits 2 before any work", function()
    for words, text in pairs {
      ["--iters 0"] = "option 'iters': expected an integer from 1 to 1000000000, got 0",
      ["--iters x"] = "option 'iters': expected an integer, got 'x'",
      ["--iters 1.5"] = "option 'iters': expected an integer",
      ["--lr nan"] = "option 'lr': expected a finite number",
      ["--lr=-1"] = "option 'lr': expected a number from 0 to 1000000, got -1",
      ["--mode materialise"] = "got 'materialise'; did you mean 'materialize'?",
      ["--model linear-tyni"] = "got 'linear-tyni'; did you mean 'linear-tiny'?",
      ["--batch-size"] = "option '--batch-size': expected a value (int), got the end of the line",
      ["--seed 99999999999999999999"] = "option 'seed': expected an integer",
      ["--iters 1 --iters 2"] = "option '--iters': expected one value, got 1 and 2",
      ["--iters 1 2"] = "option '--iters': expected one value, got 1 and 2",
      ["word"] = "expected an option like --batch-size 4 or batch_size=4, got 'word'",
      ["--output"] = "--output",
    } do
      local result = run("profile " .. words)
      assert.are.equal(2, result.code, words)
      assert.matches(text, result.err, 1, true)
      assert.are.equal("", result.out, words)
    end
  end)

  it("--json prints the record and nothing else", function()
    local result = run("profile --json " .. tiny)
    assert.are.equal(0, result.code, result.err)
    local record = support.parse_json(result.out)
    assert.are.equal("ok", record.status)
    for _, key in ipairs { "metrics", "options", "steps", "time", "memory_stages", "privacy" } do assert.is_not_nil(record[key], key) end
    assert.are.equal(1, #record.steps)
  end)

  it("prints steps, phases, memory, speed and why there is no epsilon", function()
    local result = run("profile " .. tiny)
    assert.are.equal(0, result.code, result.err)
    for _, word in ipairs { "step 1: loss", "median", "forward", "memory    peak", "tokens/s", "no epsilon" } do
      assert.matches(word, result.out, 1, true)
    end
  end)

  it("takes the seeds' spellings", function()
    local result = run("profile --json --model-name linear-tiny --seq-length 8 --batch_size=4 --num-iter 2 --warmup-iter 1 --sigma 0.5 "
      .. "--mode no_dp --max-grad-norm 2 --learning-rate 1e-4 hidden_dim=16 --threads 1")
    assert.are.equal(0, result.code, result.err)
    local options = support.parse_json(result.out).options
    assert.are.equal("linear-tiny", options.model)
    assert.are.equal(8, options.seq_length)
    assert.are.equal(4, options.batch_size)
    assert.are.equal(2, options.iters)
    assert.are.equal(1, options.warmup)
    assert.are.equal(0.5, options.noise_multiplier)
    assert.are.equal("none", options.mode)
    assert.are.equal(2, options.max_grad_norm)
    assert.are.equal(1e-4, options.lr)
    assert.are.equal(16, options.hidden_dim)
  end)

  it("out of memory exits 3 and says what to do", function()
    local result = run("profile --model linear-tiny --device cpu --batch-size 512 --memory-limit-mb 1 --json")
    assert.are.equal(3, result.code)
    assert.matches("memory: tried to allocate", result.err, 1, true)
    assert.matches("lower batch_size or seq_length", result.err, 1, true)
    assert.are.equal("oom", support.parse_json(result.out).status)
  end)

  it("--output writes the suites' keys, whole or not at all", function()
    assert.are.equal(0, run("profile --output result.json " .. tiny).code)
    local file = support.parse_json(support.read(folder .. "/result.json"))
    for _, key in ipairs { "mode", "seq_length", "batch_size", "total_batch_size", "num_gpus", "peak_memory_mb", "peak_memory_gb",
      "avg_time_ms", "config", "status", "record" } do
      assert.is_not_nil(file[key], key)
    end
    assert.are.same({ "result.json" }, support.list(folder))
  end)

  it("--output gives the trace its own name, so that another result does not overwrite it", function()
    os.execute(("mkdir -p %s/two"):format(folder))
    for _, name in ipairs { "a", "b" } do
      assert.are.equal(0, run(("profile --profile trace --output two/%s.json %s"):format(name, tiny)).code)
    end
    local list = support.list(folder .. "/two")
    table.sort(list)
    assert.are.equal(4, #list)
    assert.matches("^a%.trace%.rank0%.json", list[2])
    assert.matches("^b%.trace%.rank0%.json", list[4])
  end)

  it("--output into a folder that is not there is clear and exits 1", function()
    local result = run("profile --output none/result.json " .. tiny)
    assert.are.equal(1, result.code)
    assert.matches("none/result.json: cannot create: No such file or directory", result.err, 1, true)
  end)
end)

describe("profile of every engine and family", function()
  it("runs the seeds' modes by their own names", function()
    for mode, engine in pairs { no_dp = "none", vanilla = "none", ghost_fsdp = "ghost", flash_fsdp = "flash", flash_clip = "flash",
      bookkeeping = "bookkeeping", flash_clip_bookkeeping = "flash_bookkeeping", materialize = "materialize", auto = "auto" } do
      local result = run(("profile --json --mode %s %s"):format(mode, tiny))
      assert.are.equal(0, result.code, mode .. ": " .. result.err)
      local record = support.parse_json(result.out)
      assert.are.equal(engine, record.options.mode)
      assert.are.equal(engine ~= "none", record.privacy.private_engine)
      assert.are.equal(engine == "ghost" or engine == "flash", record.time.phases_ms.second_backward ~= nil, mode)
    end
  end)

  it("runs images and texts; a name of the Hub is its preset", function()
    local words = " --mode auto --device cpu --batch-size 2 --iters 1 --warmup 0 --threads 1 --json"
    for model, task in pairs { ["dit-tiny"] = "denoise", ["qwen2.5-tiny"] = "lm", ["llama3.2-tiny"] = "classify" } do
      local result = run("profile --model " .. model .. words)
      assert.are.equal(0, result.code, model .. ": " .. result.err)
      local record = support.parse_json(result.out)
      assert.are.equal(task, record.options.task)
      assert.is_true(record.metrics.tokens_per_s > 0)
    end
    local result = run("run " .. script([[
      local options = require("moonshard").resolve({ model = "meta-llama/Meta-Llama-3.1-8B-Instruct" }).options
      print(options.model, options.hidden_dim)]]))
    assert.are.equal("llama3.1-8b\t4096\n", result.out, result.err)
  end)

  it("says what to do when weights are not here: licence, token, local folder", function()
    local result = run("profile --weights meta-llama/Llama-3.1-8B-Instruct " .. tiny)
    assert.are.equal(2, result.code)
    for _, text in ipairs { "looks like a model on the Hugging Face Hub; moonshard downloads nothing", "accept its licence", "HF_TOKEN",
      "hf download meta-llama/Llama-3.1-8B-Instruct --local-dir Llama-3.1-8B-Instruct" } do
      assert.matches(text, result.err, 1, true)
    end
    result = run("profile --weights ./none " .. tiny)
    assert.are.equal(2, result.code)
    assert.matches("expected a .safetensors file or a folder with such files, got './none', which does not exist", result.err, 1, true)
    result = run("run " .. script([[require("moonshard").model("llama3-tiny", { weights = "owner/model" })]]))
    assert.are.equal(1, result.code)
    assert.matches("script.lua:1: weights: expected a local file or folder, got 'owner/model'", result.err, 1, true)
  end)
end)

describe("run", function()
  it("gives the script its arguments and passes its output on", function()
    local result = run("run " .. script("print(arg[0], arg[1], select('#', ...), select(2, ...))") .. " one 'two words'")
    assert.are.equal(0, result.code, result.err)
    assert.are.equal(folder .. "/script.lua\tone\t2\ttwo words\n", result.out)
  end)

  it("takes a first line for the shell and keeps line numbers", function()
    local result = run("run " .. script("#!/usr/bin/env moonshard\nerror('here')"))
    assert.matches("script.lua:2: here", result.err, 1, true)
  end)

  it("an error exits 1 with the position and a traceback", function()
    local result = run("run " .. script("local function f()\n  local x = nil\n  return x.y\nend\nf()"))
    assert.are.equal(1, result.code)
    assert.matches("moonshard: .*script%.lua:3: attempt to index local 'x' %(a nil value%)", result.err)
    assert.matches("stack traceback:\n", result.err, 1, true)
    assert.matches("script%.lua:5: in main chunk", result.err)
  end)

  it("an error of the module is at the script's line", function()
    local result = run("run " .. script("local ms = require 'moonshard'\nms.zeros(-1)"))
    assert.are.equal(1, result.code)
    assert.matches("script.lua:2: ms.zeros: expected sizes >= 0, got -1", result.err, 1, true)
  end)

  it("a syntax error exits 1 with the position", function()
    local result = run("run " .. script("local x = = 1"))
    assert.are.equal(1, result.code)
    assert.matches("script.lua:1: unexpected symbol", result.err, 1, true)
  end)

  it("an error object says what it is", function()
    local result = run("run " .. script("error({})"))
    assert.are.equal(1, result.code)
    assert.matches("error object", result.err, 1, true)
    result = run("run " .. script("error(setmetatable({}, { __tostring = function() return 'in words' end }))"))
    assert.matches("in words", result.err, 1, true)
  end)

  it("an error object whose __tostring raises is an error like others", function()
    local result = run("run " .. script("error(setmetatable({}, { __tostring = function() error('inner') end }))"))
    assert.are.equal(1, result.code)
    assert.matches("moonshard: an error object of type table, whose __tostring raises", result.err, 1, true)
    assert.is_nil(result.err:match("PANIC"))
  end)

  it("os.exit ends with the script's code", function()
    assert.are.equal(7, run("run " .. script("os.exit(7)")).code)
  end)

  it("a missing script, a folder and no script are clear", function()
    local result = run("run none.lua")
    assert.are.equal(1, result.code)
    assert.matches("none.lua: cannot read: No such file or directory", result.err, 1, true)
    result = run("run .")
    assert.are.equal(1, result.code)
    assert.matches("expected a file, got a folder", result.err, 1, true)
    assert.are.equal(2, run("run").code)
  end)

  it("byte code is refused everywhere", function()
    local path = script("print('ran')")
    os.execute(("cd %s && luajit -b script.lua code.lua && luajit -b script.lua mod.lua"):format(folder))
    local result = run("run code.lua")
    assert.are_not.equal(0, result.code)
    assert.matches("code.lua: expected source text, got byte code", result.err, 1, true)
    support.write(path, [[
      local code = string.dump(function() print("ran") end)
      print(load(code), loadstring(code), (loadfile("code.lua")), load(function() local c = code code = nil return c end))
      print(pcall(dofile, "code.lua"))
      print(pcall(require, "mod"))]])
    result = run("run script.lua")
    assert.is_nil(result.out:find("ran", 1, true), result.out)
    assert.matches("got byte code", result.out, 1, true)
  end)
end)

describe("sweep", function()
  local text = ([[
    local ms = require "moonshard"
    ms.sweep { name = "cli", %s, grid = { mode = { "none", "materialize" }, seq_length = { 8, 16 } } }:run()]]):format(tiny_lua)

  it("--dry-run lists the points and makes nothing", function()
    script(text)
    local result = run("sweep script.lua --dry-run")
    assert.are.equal(0, result.code, result.err)
    local _, lines = result.out:gsub("\n", "")
    assert.are.equal(4, lines)
    assert.matches("1. mode=none seq_length=8", result.out, 1, true)
    assert.are.same({ "script.lua" }, support.list(folder))
  end)

  it("--only and --set choose and change points", function()
    script(text)
    local result = run("sweep script.lua --dry-run --only mode=mat* --set seq_length=32")
    assert.are.equal(0, result.code, result.err)
    assert.matches("^1%. mode=materialize  %x+\n$", result.out)
    result = run("sweep script.lua --dry-run --only seq-len=8")
    local _, lines = result.out:gsub("\n", "")
    assert.are.equal(2, lines, result.err)
  end)

  it("runs into results/ and exits 0", function()
    script(text)
    local result = run("sweep script.lua --only mode=none --only seq_length=8")
    assert.are.equal(0, result.code, result.err)
    assert.are.equal(1, #support.list(folder .. "/results"))
  end)

  it("a point out of memory exits 5", function()
    script([[require("moonshard").sweep { model = "linear-tiny", device = "cpu", batch_size = 512, iters = 1, warmup = 0, threads = 1,
      grid = { memory_limit_mb = { 1 } } }:run()]])
    assert.are.equal(5, run("sweep script.lua").code)
    os.execute("rm -r " .. folder .. "/results")
    assert.are.equal(5, run("run script.lua").code)
  end)

  it("refuses a device that is none, and takes none for auto", function()
    for _, device in ipairs { "0/0", "-1", "{}", "true", "'cuda:x'" } do
      local result = run("sweep " .. script("require('moonshard').sweep { " .. tiny_lua:gsub('device = "cpu"', "device = " .. device) ..
        ", grid = { mode = { 'ghost' } } }:run()") .. " --dry-run")
      assert.are_not.equal(0, result.code, device)
      assert.matches("option 'device': expected one of", result.err, 1, true)
    end
  end)

  it("mistakes on the command line exit 2", function()
    script(text)
    for words, wanted in pairs {
      [""] = "sweep: expected a script, got nothing",
      ["none"] = "sweep: expected a script, got 'none'",
      ["script.lua --dry-rum"] = "sweep: unknown option '--dry-rum'; did you mean '--dry-run'?",
      ["script.lua --set"] = "option '--set': expected a value, got the end of the line",
      ["script.lua --set mode"] = "option '--set': expected KEY=VALUE, got 'mode'",
      ["script.lua --set seed=9007199254740993"] = "option '--set': expected a whole number up to 2^53, got 9007199254740993",
      ["script.lua --set modle=x"] = "unknown option 'modle'; did you mean 'model'?",
      ["script.lua --only modle=x"] = "unknown option 'modle'; did you mean 'model'?",
    } do
      local result = run("sweep " .. words)
      assert.matches(wanted, result.err, 1, true)
      assert.are.equal(2, result.code, words .. ": " .. result.err)
      assert.is_nil(result.err:find("traceback", 1, true))
    end
  end)

  it("--only that leaves no point is an error that says so", function()
    script(text)
    local result = run("sweep script.lua --only mode=zzz")
    assert.are_not.equal(0, result.code)
    assert.matches("expected at least one point, got none; check --only", result.err, 1, true)
  end)

  it("an error in the script exits 1 with its position", function()
    script("local x = nil\nx.y = 1")
    local result = run("sweep script.lua")
    assert.are.equal(1, result.code)
    assert.matches("script.lua:2: attempt to index", result.err, 1, true)
  end)
end)

describe("queries", function()
  it("doctor names the defects of a run folder, and exits 1 when there is one", function()
    local made = run(("profile --json %s --output out.json"):format(tiny))
    assert.are.equal(0, made.code, made.err)
    local good = run("doctor " .. folder .. "/out.json")
    assert.are.equal(0, good.code, good.out)
    assert.matches("1 files, 1 records, no defects", good.out, 1, true)
    support.write(folder .. "/out.json", (support.read(folder .. "/out.json"):gsub('"peak_memory_mb": [%d.]+', '"peak_memory_mb": 1')))
    local bad = run("doctor --json " .. folder .. "/out.json")
    assert.are.equal(1, bad.code, bad.out)
    assert.matches("metrics.peak_memory_mb, from peak_memory_bytes", support.parse_json(bad.out).folders[1].defects[1].what, 1, true)
  end)

  it("doctor, models and engines print JSON", function()
    for _, verb in ipairs { "doctor", "models", "engines" } do
      local result = run(verb .. " --json")
      assert.are.equal(0, result.code, result.err)
      local value = support.parse_json(result.out)
      assert.is_true(#(value.findings or value) > 0, verb)
    end
  end)

  it("doctor tells the load, and nothing about what no code reads", function()
    local out = run("doctor").out
    assert.matches("load +[%d.]+ on average over the last minute, %d+ cores", out)
    assert.is_nil(out:find("HF_TOKEN", 1, true))
  end)

  it("and tables for people", function()
    assert.matches("llama3-tiny", run("models").out, 1, true)
    assert.matches("materialize", run("engines").out, 1, true)
    assert.is_true(#run("doctor").out > 0)
  end)

  it("models --json lists the seeds' models and a tiny one of each family, with what they cost", function()
    local by_name = {}
    for _, model in ipairs(support.parse_json(run("models --json").out)) do
      by_name[model.name] = model
      assert.is_true(model.flops_per_token > 0, model.name)
      assert.is_true(model.memory_batch_1_bytes > model.parameter_bytes, model.name)
    end
    for name, billions in pairs { ["llama3.1-8b"] = 7.505, ["llama3.2-1b"] = 1.236, ["qwen1.5-1.8b"] = 1.837, ["qwen2.5-1.5b"] = 1.544,
      ["dit-l/8"] = 0.459, ["dit-xl/2"] = 0.675 } do
      assert.is_not_nil(by_name[name], name)
      assert.is_true(math.abs(by_name[name].num_parameters / 1e9 - billions) < 0.001, name)
    end
    for _, name in ipairs { "linear-tiny", "llama3-tiny", "llama3.1-tiny", "llama3.2-tiny", "qwen1.5-tiny", "qwen2.5-tiny", "dit-tiny",
      "dit-xl-tiny" } do
      assert.is_true(by_name[name].num_parameters < 1e6, name)
    end
    assert.are.equal(6 * 4 * 256 * 256, by_name["linear-tiny"].flops_per_token)
  end)

  it("engines --json lists seven, with what verify proves of each", function()
    local by_name = {}
    for _, engine in ipairs(support.parse_json(run("engines --json").out)) do
      by_name[engine.name] = engine
      for _, key in ipairs { "layers", "models", "options", "dtypes" } do
        assert.is_true(#engine[key] > 0, engine.name .. " " .. key)
        engine[key] = " " .. table.concat(engine[key], " ") .. " "
      end
      for _, layer in ipairs { "linear", "linear_bias", "embedding", "tied_embedding", "rms_norm", "layer_norm", "patch_embedding",
        "position_table", "adaln_linear", "label_embedding" } do
        assert.matches(" " .. layer .. " ", engine.layers, 1, true)
      end
      assert.matches(" checkpointing ", engine.options, 1, true)
      assert.are.equal(" bfloat16 float32 float64 ", engine.dtypes)
    end
    assert.are.same({ "auto", "bookkeeping", "flash", "flash_bookkeeping", "ghost", "materialize", "none" }, support.keys(by_name))
    assert.matches(" input_length ", by_name.flash.options, 1, true)
    assert.is_nil(by_name.ghost.options:find(" input_length ", 1, true))
  end)

  it("a misspelt flag exits 2", function()
    local result = run("models --jsn")
    assert.matches("models: unknown option '--jsn'; did you mean '--json'?", result.err, 1, true)
    assert.are.equal(2, result.code)
    assert.are.equal(2, run("doctor --jsn").code)
  end)

  it("plot on a folder that is none is clear and exits 1", function()
    local result = run("plot none")
    assert.are.equal(1, result.code)
    assert.matches("moonshard: none: expected a run folder with sweep.json, got nothing at that path", result.err, 1, true)
    assert.are.equal(2, run("plot").code)
    result = run("plot none time_comparisn")
    assert.are.equal(2, result.code)
    assert.matches("got 'time_comparisn'; did you mean 'time_comparison'?", result.err, 1, true)
  end)
end)

describe("completion", function()
  local function complete(words)
    local list = {}
    for word in words:gmatch("%S+") do list[#list + 1] = support.shell_quoted(word) end
    local last = words:match("%s$") and "''" or ""
    local count = #list - (last == "" and 1 or 0)
    local source = "source <(%s completion bash); COMP_WORDS=(%s %s); COMP_CWORD=%d; _moonshard; echo \"${COMPREPLY[@]}\""
    local result = support.run(source:format(quoted, table.concat(list, " "), last, count), { folder = folder })
    assert.are.equal("", result.err)
    return result.out:gsub("\n$", "")
  end

  it("is accepted by bash", function()
    local result = support.run(quoted .. " completion bash | bash -n")
    assert.are.equal(0, result.code)
    assert.are.equal("", result.err)
  end)

  it("completes verbs, options and values", function()
    assert.are.equal("profile", (complete("moonshard prof")))
    assert.matches("--batch-size", complete("moonshard profile --batch"), 1, true)
    assert.are.equal("materialize", (complete("moonshard profile --mode mat")))
    assert.are.equal("linear linear-tiny", (complete("moonshard profile --model lin")))
    assert.matches("--resume", complete("moonshard sweep x.lua --re"), 1, true)
  end)

  it("another shell is refused with the known ones", function()
    local result = run("completion fish")
    assert.are.equal(2, result.code)
    assert.matches("completion: expected bash or zsh, got 'fish'", result.err, 1, true)
  end)
end)

describe("a full disk", function()
  it("output that cannot be written is an error", function()
    for _, words in ipairs { "--help", "models --json", "engines", "doctor --json", "completion bash", "profile --json " .. tiny } do
      local result = run(words .. " >/dev/full")
      assert.are_not.equal(0, result.code, words)
    end
  end)

  it("results that do not fit leave an error, nothing torn, and a folder that can be read", function()
    local mounted = os.execute(("mount -t tmpfs -o size=64k none %s 2>/dev/null"):format(folder))
    if mounted ~= 0 and mounted ~= true then return pending("mounting a small tmpfs is not permitted here") end
    finally(function() os.execute("umount " .. folder) end)
    support.write(folder .. "/script.lua", ([[
      local ms = require "moonshard"
      ms.sweep { %s, grid = { seq_length = { 1, 2, 3, 4, 5, 6, 7, 8 } } }:run()]]):format((tiny_lua:gsub("iters = 1", "iters = 20"))))
    local result = run("run script.lua")
    assert.are_not.equal(0, result.code)
    assert.matches("No space left on device", result.err .. result.out, 1, true)
    for _, name in ipairs(support.list(folder .. "/results")) do
      for _, file in ipairs(support.list(folder .. "/results/" .. name)) do
        local path = ("%s/results/%s/%s"):format(folder, name, file)
        if file:match("%.json$") then support.parse_json(support.read(path)) end
        assert.is_nil(file:find("moonshard-tmp", 1, true), file)
      end
    end
  end)
end)

describe("ms.run", function()
  it("tells how far it is on a terminal, and only there", function()
    script([[
      local ms = require "moonshard"
      print(ms.run({ model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1, iters = 3, warmup = 0 }).status)]])
    local code = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    local shown = support.run(("python3 -c '%s' %s run script.lua"):format(code, program), { folder = folder })
    assert.matches("ms.run: step 1 of 3, loss ", shown.out, 1, true)
    assert.is_nil(run("run script.lua").err:find("ms.run:", 1, true))
  end)

  it("names the line of the script in its errors", function()
    script("local ms = require 'moonshard'\nprint(pcall(function() ms.run { modle = 'x' } end))")
    assert.matches("script.lua:2: experiment: unknown option 'modle'", run("run script.lua").out, 1, true)
  end)
end)

describe("an interrupt", function()
  it("twice stops a sweep with exit code 130, says how to go on, and leaves a readable folder", function()
    script(([[
      local ms = require "moonshard"
      ms.sweep { %s, grid = { iters = { 1, 1000000 } } }:run()]]):format((tiny_lua:gsub(",%s*iters = 1", ""))))
    os.execute(("cd %s && { sh -c 'echo $$ >pid; exec %s run script.lua' >out 2>err; echo $? >code; } &"):format(folder, program))
    local function second_runs()
      local names = support.list(folder .. "/results")
      return #names > 0 and #support.list(folder .. "/results/" .. names[1] .. "/points") == 2
    end
    assert.is_true(support.wait_for(second_runs, 15))
    local pid = support.read(folder .. "/pid"):match("%d+")
    os.execute(("sleep 0.2; kill -INT %s; sleep 0.3; kill -INT %s"):format(pid, pid))
    assert.is_true(support.wait_for(function() return (support.read(folder .. "/code") or "") ~= "" end, 8))
    assert.are.equal("130\n", support.read(folder .. "/code"))
    local path = folder .. "/results/" .. support.list(folder .. "/results")[1]
    assert.are.same({}, support.processes_with(path))
    local said = support.read(folder .. "/out") .. support.read(folder .. "/err")
    assert.matches("1 ok, 1 interrupted; ", said, 1, true)
    assert.matches("resume", said, 1, true)
    local words = {}
    for _, id in ipairs(support.list(path .. "/points")) do words[#words + 1] = support.read(path .. "/points/" .. id .. "/status") end
    table.sort(words)
    assert.are.same({ "interrupted\n", "ok\n" }, words)
    assert.matches(",interrupted,", support.read(path .. "/index.csv"), 1, true)
  end)

  it("of ms.run keeps its steps", function()
    script([[
      local ms = require "moonshard"
      local ok, message = pcall(ms.run, { model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1,
        iters = 100000000, warmup = 1 })
      local record = ms.last_run()
      print(ok, message)
      print(record.status, record.error, #record.steps > 2, record.metrics.median_time_ms > 0)]])
    os.execute(("cd %s && { sh -c 'echo $$ >pid; exec %s run script.lua' >out 2>err; echo $? >code; } &"):format(folder, program))
    os.execute("sleep 3; kill -INT $(cat " .. folder .. "/pid)")
    assert.is_true(support.wait_for(function() return (support.read(folder .. "/code") or "") ~= "" end, 20))
    local out = support.read(folder .. "/out")
    assert.matches("false\t[^\n]*interrupted after %d+ of 100000001 steps; ms.last_run%(%) has their record", out)
    assert.matches("interrupted\tinterrupted after %d+ of 100000001 steps\ttrue\ttrue", out)
  end)

  it("stops a script in a loop of its own with exit code 130", function()
    script("io.stdout:write('on\\n') io.stdout:flush() local n = 0 while true do n = n + #tostring(n) end")
    os.execute(("cd %s && { sh -c 'echo $$ >pid; exec %s run script.lua' >out 2>err; echo $? >code; } &"):format(folder, program))
    assert.is_true(support.wait_for(function() return (support.read(folder .. "/out") or "") ~= "" end, 10))
    os.execute("kill -INT " .. support.read(folder .. "/pid"))
    -- A loop that LuaJIT compiled looks at no hook: the second Ctrl-C is the default's.
    if not support.wait_for(function() return (support.read(folder .. "/code") or "") ~= "" end, 1) then
      os.execute("kill -INT " .. support.read(folder .. "/pid"))
    end
    assert.is_true(support.wait_for(function() return (support.read(folder .. "/code") or "") ~= "" end, 3))
    assert.are.equal("130\n", support.read(folder .. "/code"))
  end)
end)
