--- The document scripts: flags as the suites write them, plans, single experiments, figures only, files and keys.
local support = require "tests.support.support"
local ms = require "moonshard"
local arguments = require "moonshard.arguments"
local claims = require "moonshard.studies.claims"
local dit_result = require "moonshard.studies.dit_result"
local document_flags = require "moonshard.studies.flags"
local fake = require "tests.support.fake_runs"
local linear = require "moonshard.studies.linear_configurations"
local llm_against_dit = require "moonshard.studies.llm_against_dit"
local norm_sums = require "moonshard.studies.norm_sums"
local sample_text = require "moonshard.studies.sample_text"
local slow = require "moonshard.studies.slow"
local stage_rows = require "moonshard.studies.stage_rows"
local usage = require "moonshard.usage"
local zero_tables = require "moonshard.studies.zero_tables"

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

  it("say why they are refuted, and when they would hold", function()
    local function point(mode, ms_per_step, mib, owners, phases)
      local breakdown, phases_ms = {}, {}
      for owner, size in pairs(owners) do breakdown[#breakdown + 1] = { owner = owner, bytes = size * 2 ^ 20 } end
      for phase, ms_of in pairs(phases) do phases_ms[phase] = { median = ms_of } end
      return { options = { mode = mode, hidden_dim = 512 }, metrics = fake.metrics(ms_per_step, mib),
        result = { memory = { breakdown = breakdown, peak_phase = "backward" }, time = { phases_ms = phases_ms } } }
    end
    local made = fake.make(folder, { "mode" }, {
      point("none", 10, 100, { gradients = 60, activations = 40 }, { forward = 4, backward = 6 }),
      point("ghost", 8, 70, { gradients = 0, activations = 60, parameters = 10 }, { forward = 4, backward = 4 }),
    })
    local holds, text = claims.memory("ghost", "none", 1)(made)
    assert.is_false(holds)
    assert.matches("why: at the peak gradients -60.0 MiB, activations +20.0 MiB, parameters +10.0 MiB", text, 1, true)
    -- 10 + 60 k against 60 + 40 k, and half a percent more.
    assert.matches("it would hold from about 2.5 times the tokens per micro-batch on", text, 1, true)
    assert.matches("no number of tokens changes that", select(2, claims.memory("ghost", "none", 2)(made)), 1, true)
    holds, text = claims.time("ghost", "none", 1, nil, claims.flash_is_cheaper)(made)
    assert.is_false(holds)
    assert.matches("why: backward -2 ms; it would hold if the step took at least 10.05 ms (it takes 8 ms)", text, 1, true)
    assert.matches("512 x 512 layer are cheaper from 512 positions on", text, 1, true)
    holds, text = claims.bound { metric = "median_time_ms", most = 9 }(made)
    assert.is_false(holds)
    assert.matches("why: outside are none: 10; it holds at the other 1", text, 1, true)
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

describe("tables of ZeRO", function()
  local function runs()
    return fake.make(folder, { "sharding", "batch_size" }, {
      { options = { mode = "none", sharding = "zero2", batch_size = 2, grad_accum = 2, nproc = 1, world = "fake:8", parallel = "fsdp" },
        metrics = fake.metrics(10, 100), result = { memory = { timeline = { ms = { 0, 1, 10 }, total = { 2 ^ 30, 3 * 2 ^ 30, 0 } } } } },
      { options = { mode = "none", sharding = "zero3", batch_size = 4, grad_accum = 1, nproc = 1, world = "fake:8", parallel = "fsdp" },
        status = "oom" },
    })
  end

  it("have the right number of ranks where memory ran out, and say what is modelled", function()
    local rows = zero_tables.table(runs()).rows
    assert.are.same({ "zero2", 2, 2, 32, 8, "ok", "communication" }, { unpack(rows[1], 1, 7) })
    assert.are.same({ "zero3", 4, 1, 32, 8, "oom", "communication" }, { unpack(rows[2], 1, 7) })
    assert.matches("Modelled: all points ran as one rank of 8", tostring(zero_tables.short(runs())), 1, true)
  end)

  it("average memory over time, and not over samples", function()
    assert.are.equal(2.8, zero_tables.average_memory_gb(runs().points[1]))
    local point = runs().points[1]
    point.metrics.avg_memory_bytes = 2 ^ 31
    assert.are.equal(2, zero_tables.average_memory_gb(point))
  end)

  it("name files and keys by the strategy", function()
    local name, content = zero_tables.seed_result(runs().points[1], runs().points[1])
    assert.are.equal("zero2_bs2_accum2_result.json", name)
    assert.are.equal("zero2", content.strategy)
    assert.are.equal(8, content.num_gpus)
    zero_tables.write(runs())
    local raw = support.parse_json(support.read(zero_tables.write(runs())[2]))
    assert.are.equal("zero2_bs2_accum2", raw.runs[1].key)
    assert.are.equal("communication", raw.runs[2].modelled)
  end)
end)

describe("sample text", function()
  it("is always the same, and its tokenizer gives it back", function()
    local data, tokenizer = sample_text.write(folder)
    assert.is_true(#support.read(data .. "/sample_data.txt") >= 2 ^ 21)
    local text = sample_text.text(1000)
    assert.are.equal(text, sample_text.text(1000))
    local words = ms.tokenizer(tokenizer)
    local ids = words:encode(text)
    assert.are.equal(text, words:decode(ids))
    assert.is_true(#ids < #text / 3)
    assert.is_true(words:vocab_size() <= 1024)
  end)
end)

describe("norms of ranks", function()
  local function judged(rows)
    return norm_sums.judge(fake.make(folder .. "/" .. tostring(rows):match("%x+$"), {}, { { options = { mode = "flash", seq_length = 8 },
      metrics = fake.metrics(1, 1), result = { norm_sum = rows } } }).points[1])
  end

  it("must differ before the sum, agree after it, and be the sum", function()
    local good = judged { { rank = 0, before = { 1, 2 }, after = { 4, 6 } }, { rank = 1, before = { 3, 4 }, after = { 4, 6 } } }
    assert.is_true(good.before and good.after and good.is_sum)
    assert.is_false(judged({ { rank = 0, before = { 1 }, after = { 2 } }, { rank = 1, before = { 1 }, after = { 2 } } }).before)
    assert.is_false(judged({ { rank = 0, before = { 1 }, after = { 3 } }, { rank = 1, before = { 2 }, after = { 4 } } }).after)
    assert.is_false(judged({ { rank = 0, before = { 1 }, after = { 9 } }, { rank = 1, before = { 2 }, after = { 9 } } }).is_sum)
    assert.is_nil(judged({}))
  end)
end)

describe("the tutorial's configurations", function()
  it("are nine and the one with the whole model first", function()
    local plan = linear.plan({ grid = {} }, {})
    assert.are.equal(10, #plan.zip.parallel)
    assert.is_true(plan.zip.whole_first[10])
  end)

  it("have traces under names that TensorBoard's profiler plugin opens", function()
    assert.are.equal("rank0.pt.trace.json.gz", linear.trace_name "trace.rank0.json.gz")
    assert.are.equal("rank12.pt.trace.json", linear.trace_name "trace.rank12.json")
  end)

  it("run in PyTorch, too, where Python has it", function()
    local python = support.root() .. "/.deps/venv/bin/python"
    if not support.exists(python) or support.run(support.shell_quoted(python) .. " -c 'import torch'", { folder = folder }).code ~= 0 then
      pending("no Python with torch")
      return
    end
    local result = support.run(("%s %s/scripts/studies/fsdp_linear_torch.py --on_cpu --width 16 --batch_size 4 --output rows.json"):format(
      support.shell_quoted(python), support.root()), { folder = folder, seconds = 120 })
    assert.are.equal(0, result.code, result.err)
    local rows = support.parse_json(support.read(folder .. "/rows.json"))
    assert.are.equal(6, #rows)
    assert.are.equal("fsdp", rows[6].parallel)
    assert.are.equal("after warmup", rows[6].stage)
  end)

  it("are set beside the tutorial's peaks and reserved memory, and PyTorch's", function()
    local stage = { stage = "after warmup", rank = 0, allocated_bytes = 2 ^ 30, max_allocated_bytes = 2 ^ 31, reserved_bytes = 3 * 2 ^ 30,
      max_reserved_bytes = 2 ^ 32 }
    local runs = fake.make(folder, { "parallel" }, { { options = { parallel = "ddp", mode = "none" }, metrics = fake.metrics(1, 1),
      result = { memory_stages = { stage } } } })
    local text = tostring(linear.against_tutorial(runs, { { parallel = "ddp", stage = "after warmup", allocated_bytes = 25 * 2 ^ 30,
      max_allocated_bytes = 26 * 2 ^ 30, reserved_bytes = 29 * 2 ^ 30, max_reserved_bytes = 29 * 2 ^ 30 } }))
    assert.matches("ddp%s+after warmup%s+the tutorial%s+25.0173%s+26.5955%s+29.0156%s+29.0156", text)
    assert.matches("ddp%s+after warmup%s+PyTorch here%s+25.0000%s+26.0000%s+29.0000", text)
    assert.matches("ddp%s+after warmup%s+ddp%s+1.0000%s+2.0000%s+3.0000%s+4.0000", text)
  end)
end)

describe("hints", function()
  it("for slow runs count the seconds, and what saves how many", function()
    local function point(mode, seconds)
      return { options = { mode = mode, num_layers = 8 }, metrics = { end_to_end_s = seconds, median_time_ms = 1000 },
        result = { time = { samples_ms = { 1000, 1000, 1000, 1000, 1000, 1000 }, warmup_ms = { 1000 } } } }
    end
    local text = slow.hints(fake.make(folder, { "mode" }, { point("none", 10), point("ghost", 30) }))
    assert.matches("Time of the run: 40 s in 2 points: 12 s of measured steps, 2 s of warm-up, 26 s of starting", text, 1, true)
    assert.matches("about   30 s less: without ghost", text, 1, true)
    assert.matches("about    6 s less: --num-iter 3 instead of 6", text, 1, true)
    assert.matches("--num-layers 4 instead of 8", text, 1, true)
  end)

  it("of memory come with a point that ran out of it", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "none" }, status = "oom", result = { savings = {
      { change = "checkpointing = block", bytes = 3 * 2 ^ 30, reason = "inputs stay" } } } } })
    assert.matches("-> checkpointing = block saves 3.00 GiB: inputs stay", (runs:summary()), 1, true)
  end)
end)

describe("a language model against a diffusion transformer", function()
  it("is compared engine by engine, with as many tokens in a step", function()
    local function point(task, mode, batch, length, time)
      return { options = { task = task, mode = mode, batch_size = batch, seq_length = length }, metrics = fake.metrics(time, 1024),
        result = { time = { samples_ms = { time, time, time } } } }
    end
    local runs = fake.make(folder, { "task", "mode" }, { point("lm", "none", 1, 8192, 10), point("lm", "flash", 1, 8192, 30),
      point("denoise", "none", 8, 1024, 5), point("denoise", "flash", 8, 1024, 10) })
    local text = tostring(llm_against_dit.table(runs))
    assert.matches("tokens in a step%s+8192%s+8192%s+1.00x", text)
    assert.matches("flash: median ms%s+30%s+10%s+3.00x", text)
    assert.matches("flash: time x of none%s+3.000 … 3.000%s+2.000 … 2.000", text)
    assert.is_nil(llm_against_dit.table(fake.make(folder .. "/one", { "mode" }, { point("lm", "none", 1, 8, 1) })))
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
  return support.run_program(words, { folder = folder, seconds = seconds or 120 })
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
    assert.matches("unknown preset 'huge'; known: against_llm, against_llm_tiny, document, full, tiny, xl2", preset.err, 1, true)
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

  it("run in parts: some points now, the others when resumed, no point beyond the budget", function()
    local line = "run " .. support.shell_quoted(support.root() .. "/scripts/studies/fsdp_llama3.lua") .. " --preset tiny --modes no_dp "
      .. "flash_fsdp --seq-lengths 8 16 --no-plots" .. small
    local first = run(line .. " --only mode=none")
    assert.are.equal(0, first.code, first.err)
    local path = only_run("results")
    assert.matches("2 points have not run: the same line with --resume results/run_", first.out, 1, true)
    local second = run(line .. " --budget 0.001 --resume " .. path)
    assert.are.equal(5, second.code, second.err)
    assert.matches("budget: 0.001 s are nearly over", second.out, 1, true)
    assert.are.equal(1, ms.load(path):count("planned"))
    local last = run(line .. " --resume " .. path)
    assert.are.equal(0, last.code, last.err)
    assert.are.equal(4, ms.load(path):count("ok"))
  end)

  it("a folder without results is refused", function()
    os.execute("mkdir " .. folder .. "/empty")
    local result = run("sweep fsdp_llama3 --plots-only empty")
    assert.are.equal(2, result.code)
    assert.matches("fsdp_llama3: ", result.err, 1, true)
  end)
end)
