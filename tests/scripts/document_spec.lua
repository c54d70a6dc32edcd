--- The document scripts: flags as the suites write them, plans, single experiments, figures only, files and keys.
local support = require "tests.support.support"
local ms = require "moonshard"
local arguments = require "moonshard.arguments"
local claims = require "moonshard.studies.claims"
local dit_result = require "moonshard.studies.dit_result"
local document_flags = require "moonshard.studies.flags"
local fake = require "tests.support.fake_runs"
local stage_rows = require "moonshard.studies.stage_rows"
local usage = require "moonshard.usage"

local folder
before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local flags = document_flags.all({}, ms.options())
local function parse(line)
  local words = {}
  for word in line:gmatch("%S+") do words[#words + 1] = word end
  return arguments.parse("script", words, flags)
end

local function mistake_of(line)
  local ok, mistake = pcall(parse, line)
  assert.is_false(ok)
  assert.is_true(usage.is_mistake(mistake), tostring(mistake))
  return tostring(mistake)
end

describe("flags", function()
  it("take the suites' lines as written", function()
    assert.are.same({ seq_length = { 512, 1024, 2048 }, batch_size = { 4 }, cpu = true },
      parse "--seq-lengths 512 1024 2048 --batch-size 4 --cpu")
    assert.are.same({ mode = { "ghost_fsdp" }, seq_length = { 2048 }, batch_size = { 2 }, iters = { 3 }, warmup = { 1 },
      output = "results/test_result.json", model = { "meta-llama/Llama-3.1-8B-Instruct" }, token = "x" },
      parse("--mode ghost_fsdp --seq-length 2048 --batch-size 2 --num-iter 3 --warmup-iter 1 --output results/test_result.json "
        .. "--model-name meta-llama/Llama-3.1-8B-Instruct --token x"))
    assert.are.same({ batch_size = { 2, 4, 8, 16 }, grad_accum = { 1, 2, 4 }, iters = { 50 }, nproc = { 2 },
      output_dir = "comparison_results" },
      parse "--batch_sizes 2 4 8 16 --grad_accum_steps 1 2 4 --num_steps=50 --nproc_per_node=2 --output_dir=comparison_results")
    assert.are.same({ batch_size = { 4 }, grad_accum = { 2 }, iters = { 100 }, lr = { 1e-5 }, seq_length = { 2048 },
      output_dir = "results/zero2", use_profiler = true },
      parse("--batch_size=4 --gradient_accumulation_steps=2 --num_steps=100 --learning_rate=1e-5 --max_length=2048 "
        .. "--output_dir=results/zero2 --use_profiler"))
    assert.are.same({ parallel = { "fsdp" }, batch_size = { 8192 }, forward_prefetch = { true }, backward_prefetch = { "BACKWARD_POST" } },
      parse "--data_parallel fsdp --batch_size 8192 --forward_prefetch --backward_prefetch BACKWARD_POST")
    assert.are.same({ mode = { "vanilla" }, image_size = { 256 }, patch_size = { 8 }, hidden_dim = { 1024 }, num_layers = { 24 },
      num_heads = { 16 } },
      parse "--experiment vanilla --image-size 256 --patch-size 8 --hidden-dim 1024 --num-layers 24 --num-heads 16")
  end)

  it("take booleans with and without a value", function()
    assert.are.same({ cpu_offload = { true } }, parse "--cpu-offload")
    assert.are.same({ cpu_offload = { false } }, parse "--cpu_offload=false")
    assert.are.same({ cpu_offload = { true, false } }, parse "--cpu-offload true --cpu_offload=false")
  end)

  it("refuse what they do not know, with the nearest name", function()
    assert.matches("script: unknown option '--seq-lenghts'; did you mean '--seq-length'? known: --help",
      mistake_of "--seq-lenghts 3", 1, true)
    assert.matches("option '--batch-size': expected a whole number, got 'four'", mistake_of "--batch-size four", 1, true)
    assert.matches("option '--batch-size': expected a whole number, got '1.5'", mistake_of "--batch_size=1.5", 1, true)
    assert.matches("option '--batch-size': expected a value, got '--cpu'", mistake_of "--batch-size --cpu", 1, true)
    assert.matches("option '--seq-length': expected a value, got the end of the line", mistake_of "--seq-length", 1, true)
    assert.matches("option '--cpu-offload': expected true or false, got 'maybe'", mistake_of "--cpu-offload=maybe", 1, true)
    assert.matches("expected an option like --batch-size 4, got '12'", mistake_of "12", 1, true)
  end)

  it("fill an axis, set an option, or make an axis of several values", function()
    local plan = { iters = 3, grid = { seq_length = { 1, 2 } } }
    document_flags.apply(plan, parse "--seq-length 64 --iters 5 --batch-sizes 2 4", flags)
    assert.are.same({ iters = 5, grid = { seq_length = { 64 }, batch_size = { 2, 4 } } }, plan)
  end)
end)

describe("claims", function()
  local function runs()
    return fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = "none", seq_length = 64 }, metrics = fake.metrics(10, 100) },
      { options = { mode = "flash", seq_length = 64 }, metrics = fake.metrics(20, 90) },
      { options = { mode = "none", seq_length = 128 }, metrics = fake.metrics(10, 100) },
      { options = { mode = "flash", seq_length = 128 }, metrics = fake.metrics(30, 110) },
    })
  end

  it("hold only when every pair of points does", function()
    local holds, figures = claims.time("flash_fsdp", "no_dp", 1)(runs())
    assert.is_true(holds)
    assert.are.equal("flash_fsdp / no_dp: 2x at seq_length 64, 3x at seq_length 128", figures)
    assert.is_false((claims.memory("flash", "none", 1)(runs())))
  end)

  it("are not measured where a side is missing", function()
    local holds, figures = claims.time("ghost", "none", 1)(runs())
    assert.is_nil(holds)
    assert.matches("no pair of ghost and none", figures, 1, true)
  end)

  it("bound a figure over all points", function()
    assert.is_true((claims.bound { metric = "median_time_ms", most = 30 }(runs())))
    assert.is_false((claims.bound { metric = "median_time_ms", most = 29 }(runs())))
    assert.is_nil((claims.bound { metric = "gpu_utilization_percent", least = 70 }(runs())))
  end)
end)

describe("rows of stages", function()
  it("are the tutorial's, digit for digit", function()
    local row = { stage = "after model creation", rank = 0, allocated_bytes = 9.00048828125 * 2 ^ 30, max_allocated_bytes = 9 * 2 ^ 30,
      reserved_bytes = 9.001953125 * 2 ^ 30, max_reserved_bytes = 26.595459938049316 * 2 ^ 30, rss_bytes = 0.57122802734375 * 2 ^ 30 }
    assert.are.equal("{'stage': 'after model creation', 'rank': 0, 'log_key': 'memory', 'cuda_memory_allocated_GB': 9.00048828125, "
      .. "'cuda_max_memory_allocated_GB': 9.0, 'cuda_memory_reserved_GB': 9.001953125, 'cuda_max_memory_reserved_GB': 26.595459938049316, "
      .. "'cpu_memory_rss_GB': 0.57122802734375}", stage_rows.text(row, "cuda"))
    assert.matches("'cpu_memory_allocated_GB': 9.00048828125", stage_rows.text(row, "cpu"), 1, true)
  end)
end)

describe("the DiT suite's file", function()
  it("has its name and keys, and a breakdown that adds up to the peak", function()
    local record = { options = { mode = "flash", model = "dit-tiny", batch_size = 2, iters = 3, image_size = 64 },
      metrics = { peak_memory_mb = 10, avg_time_ms = 5 }, memory_stages = { { stage = "after data", rank = 0, allocated_bytes = 2 ^ 20 } },
      memory = { breakdown = { { owner = "parameters", bytes = 4 * 2 ^ 20 }, { owner = "temporaries_ggt", bytes = 2 ^ 20 },
        { owner = "temporaries_aat", bytes = 2 ^ 20 }, { owner = "rest", bytes = 4 * 2 ^ 20 } } } }
    local name, content = dit_result.seed_result(record, { asked = { mode = "flash_clip" } })
    assert.are.equal("flash_clip_result.json", name)
    assert.are.same({ "avg_time_ms", "breakdown", "config", "experiment", "peak_memory_mb", "snapshots" }, support.keys(content))
    assert.are.equal(4, content.breakdown.model_parameters_mb)
    assert.are.equal(2, content.breakdown.temp_matrices_mb)
    local sum = 0
    for _, mib in pairs(content.breakdown) do sum = sum + mib end
    assert.are.equal(10, sum)
    assert.are.equal(1, content.snapshots[1].allocated_mb)
    assert.are.equal("flash_clip_attentionstandard_result.json",
      (dit_result.seed_result(record, { asked = { mode = "flash_clip", attention = "standard" } })))
  end)
end)

local function run(words, seconds)
  return support.run(("exec %s %s"):format(support.shell_quoted(support.program()), words), { folder = folder, seconds = seconds or 120 })
end

local function only_run(root)
  for _, name in ipairs(support.list(folder .. "/" .. root)) do
    if name:match("^run_") then return folder .. "/" .. root .. "/" .. name end
  end
end

local small = " --cpu --hidden-dim 16 --num-layers 1 --num-iter 1 --warmup-iter 0 --threads 1 --nproc 1 --parallel none"

describe("scripts", function()
  local names = { "fsdp_llama3", "flash_fsdp_bottleneck", "zero_compare", "fsdp_linear", "dit_memory" }

  it("explain themselves and list their points", function()
    for _, name in ipairs(names) do
      local help = run(("sweep %s --help"):format(name))
      assert.are.equal(0, help.code, name .. ": " .. help.err)
      assert.matches("usage: moonshard sweep " .. name, help.out, 1, true)
      assert.matches("--plots-only", help.out, 1, true)
      local list = run(("sweep %s --preset tiny --dry-run"):format(name))
      assert.are.equal(0, list.code, name .. ": " .. list.err)
      assert.matches("\n?1%. ", list.out)
      assert.is_nil(only_run("results"))
    end
  end)

  it("refuse a flag that nobody has, with exit code 2", function()
    local result = run("sweep dit_memory --imge-size 64")
    assert.are.equal(2, result.code, result.err)
    assert.matches("dit_memory: unknown option '--imge-size'; did you mean '--image-size'?", result.err, 1, true)
    local preset = run("sweep dit_memory --preset huge")
    assert.are.equal(2, preset.code)
    assert.matches("unknown preset 'huge'; known: full, tiny, xl2", preset.err, 1, true)
  end)

  it("a single experiment by flags writes the suite's file where it is asked for", function()
    local result = run("sweep fsdp_llama3 --preset tiny --mode ghost_fsdp --seq-length 16 --batch-size 2 --output out/test_result.json "
      .. "--no-plots" .. small)
    assert.are.equal(0, result.code, result.err .. result.out)
    local seed = support.parse_json(support.read(folder .. "/out/test_result.json"))
    assert.are.same({ "avg_time_ms", "batch_size", "config", "mode", "num_gpus", "peak_memory_gb", "peak_memory_mb", "seq_length",
      "total_batch_size" }, support.keys(seed))
    assert.are.equal("ghost_fsdp", seed.mode)
    assert.are.equal(16, seed.seq_length)
    assert.is_true(support.exists(only_run("results") .. "/ghost_fsdp_seq16_result.json"))
    local summary = support.read(only_run("results") .. "/visualizations/summary.txt")
    assert.matches("Overhead against none", summary, 1, true)
    assert.is_nil(summary:find("\n1\n", 1, true))
  end)

  it("draw a folder that has nothing but the suites' files, elsewhere when asked", function()
    os.execute("mkdir " .. folder .. "/seed")
    for mode, time in pairs { no_dp = 100, ghost_fsdp = 250 } do
      for _, length in ipairs { 1024, 2048 } do
        support.write(("%s/seed/%s_seq%d_result.json"):format(folder, mode, length), ([[{"mode": "%s", "seq_length": %d, "batch_size": 2,
          "total_batch_size": 4, "num_gpus": 2, "peak_memory_mb": %d, "peak_memory_gb": 12.35, "avg_time_ms": %d,
          "config": {"model_name": "meta-llama/Llama-3.1-8B-Instruct", "vocab_size": 128256, "sigma": 1.0}}]]):format(mode, length,
            9 * time, time))
      end
    end
    local result = run("sweep fsdp_llama3 --input-dir seed --output-dir drawn")
    assert.are.equal(0, result.code, result.err)
    local summary = support.read(folder .. "/drawn/summary.txt")
    assert.matches("ghost", summary, 1, true)
    assert.matches("confirmed%s+no_dp is the fastest: ghost clipping takes longer\n%s+ghost / none: 2.5x at seq_length 1024", result.out)
    assert.is_true(support.exists(folder .. "/drawn/memory_comparison.plot.json"), result.out)
    assert.is_nil(only_run("results"))
  end)

  it("on one GPU run one rank of the document's two, and say so", function()
    -- No machine of the tests has exactly one GPU and needs no more: the list of GPUs is the one thing that is pretended.
    support.write(folder .. "/one_gpu.lua", [[
      local ms = require "moonshard"
      ms.machine = function() return { gpus = { "one" } } end
      require("moonshard.studies.document").main({ name = "pretend", about = "", figures = {}, presets = {
        tiny = { model = "linear-tiny", parallel = "fsdp", nproc = 2, iters = 1, warmup = 0, grid = { mode = { "none" } } },
        full = {} } }, "--preset", "tiny", "--no-plots")]])
    local result = run("run one_gpu.lua")
    assert.are.equal(0, result.code, result.err)
    assert.matches("pretend: 1 GPU here, the document has 2: one rank of 2 runs (world = fake:2)", result.out, 1, true)
    local point = ms.load(only_run("results")).points[1]
    assert.are.equal("fake:2", point.options.world)
    assert.are.equal("ok", point.status)
  end)

  it("a folder without results is refused", function()
    os.execute("mkdir " .. folder .. "/empty")
    local result = run("sweep fsdp_llama3 --plots-only empty")
    assert.are.equal(2, result.code)
    assert.matches("fsdp_llama3: ", result.err, 1, true)
  end)
end)
