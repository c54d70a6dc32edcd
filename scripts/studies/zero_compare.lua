--- Question: what does ZeRO-3 save in memory over ZeRO-2, and what does it cost in communication and speed? (document 002)
-- Inputs: none, or --data-folder with .txt, .json and .jsonl. Outputs: comparison_results/ with a run folder, comparison_table.csv,
-- raw_metrics.json, five figures, the largest batch of each strategy, and what became of the document's claims.
-- Run: moonshard sweep zero_compare [2] [--batch_sizes 2 4 8 16] [--grad_accum_steps 1 2 4] [--num_steps=50] [--strategy zero2] [--help]
local ms = require "moonshard"
local claims = require "moonshard.studies.claims"
local document = require "moonshard.studies.document"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local usage = require "moonshard.usage"
local zero_tables = require "moonshard.studies.zero_tables"

local grid = { sharding = { "zero2", "zero3" }, batch_size = { 2, 4, 8, 16 }, grad_accum = { 1, 2, 4 } }

local function zero_ratio(metric, least, most)
  return claims.ratio { axis = "sharding", of = "zero3", to = "zero2", metric = metric, least = least, most = most }
end

--- Does tokens/s rise with every larger batch, at each accumulation and strategy?
local function rises_with_batch(runs)
  local risen, fallen = 0, 0
  local points = runs:select("ok")
  for _, a in ipairs(points) do
    for _, b in ipairs(points) do
      if a.options.sharding == b.options.sharding and a.options.grad_accum == b.options.grad_accum
        and b.options.batch_size == 2 * a.options.batch_size then
        if (b.metrics.tokens_per_s or 0) > (a.metrics.tokens_per_s or 0) then risen = risen + 1 else fallen = fallen + 1 end
      end
    end
  end
  if risen + fallen == 0 then return nil, "no two batch sizes were run" end
  return fallen == 0, ("%d of %d doublings of the batch raise tokens/s"):format(risen, risen + fallen)
end

--- The largest batch of each strategy, by trying. On a CPU under an explicit limit: host memory has no hard limit.
local max_batch, search_limit_mb
local function find_max_batch(plan)
  max_batch = {}
  for _, sharding in ipairs(plan.grid.sharding or { plan.sharding }) do
    local options = lists.merged(plan, { sharding = sharding, grad_accum = 1, iters = 1, warmup = 1, name = "max_batch_" .. sharding,
      low = search_limit_mb and 8 or 1, memory_limit_mb = plan.memory_limit_mb or search_limit_mb })
    for _, key in ipairs { "grid", "zip", "expect", "baseline", "seed_result" } do options[key] = nil end
    print(("\nlargest batch with %s%s:"):format(sharding, options.memory_limit_mb and (" in %d MiB"):format(options.memory_limit_mb) or ""))
    local ok, found = pcall(ms.find_max_batch, options)
    if not ok then
      if native.launch.interrupted() or tostring(found) == "interrupted" then error(found, 0) end
      print("largest batch: " .. tostring(found))
      return
    end
    max_batch[sharding] = { batch_size = found.batch_size, peak_memory_bytes = found.peak_memory_bytes, failed_at = found.failed_at }
  end
end

return document.main({
  name = "zero_compare",
  about = "ZeRO-2 (SHARD_GRAD_OP) against ZeRO-3 (FULL_SHARD) over batch sizes and gradient accumulation.\n"
    .. "Preset full: Qwen 1.5 1.8B, 2048 tokens, bf16, 50 steps; tiny: a small Qwen on two CPU ranks. A number without a flag is the\n"
    .. "number of ranks. zero2 keeps parameters whole from forward to backward; --strategy zero2_replicated keeps them always.",
  output_dir = "comparison_results", positional = "nproc_ranks",
  flags = {
    { name = "nproc_ranks", kind = "int", doc = "number of ranks (also as a word without a flag)" },
    { name = "max_batch", kind = "boolean",
      doc = "look for the largest batch of each strategy after the sweep; the default unless batch sizes are given" },
    { name = "data_folder", kind = "text", doc = "folder with .txt, .json and .jsonl to train on instead of random tokens" },
    { name = "compile", kind = "boolean", doc = "torch.compile of the document; there is none here, and the result says so" },
  },
  presets = {
    tiny = { model = "qwen2.5-tiny", num_layers = 6, task = "lm", optimizer = "adamw", parallel = "fsdp", nproc = 2, threads = 1,
      seq_length = 16, iters = 3, warmup = 1, grid = grid },
    full = { model = "qwen1.5-1.8b", task = "lm", optimizer = "adamw", param_dtype = "bfloat16", parallel = "fsdp", nproc = 2,
      seq_length = 2048, iters = 50, warmup = 3, grid = grid },
  },
  baseline = { sharding = "zero2" },
  figures = { "throughput_vs_batch", "memory_vs_batch", "communication_comparison", "gpu_utilization_heatmap", "overhead_breakdown" },
  plan = function(plan, given, preset)
    search_limit_mb = preset == "tiny" and 24 or nil
    if given.max_batch == nil then given.max_batch = not given.batch_size end
    plan.nproc = given.nproc_ranks or plan.nproc
    if given.compile then print("zero_compare: compile: unavailable (no torch.compile without Python); kernels are fused by hand") end
    if given.data_folder and not native.launch.exists(given.data_folder) then
      usage.fail("zero_compare: option '--data-folder': expected a folder, got '%s', which is not there", given.data_folder)
    end
    plan.data_folder = given.data_folder
    return plan
  end,
  report = function(runs) return { zero_tables.short(runs) } end,
  after = function(runs, given, plan)
    if given.max_batch and plan then find_max_batch(plan) end
    for sharding, found in pairs(max_batch or {}) do
      print(("largest batch with %s: %s%s"):format(sharding, tostring(found.batch_size),
        found.peak_memory_bytes and (", peak %.1f MiB"):format(found.peak_memory_bytes / 2 ^ 20) or ""))
    end
    if not runs.only_seed_files then
      for _, path in ipairs(zero_tables.write(runs, max_batch, plan ~= nil)) do print("table: " .. path) end
    end
  end,
  expect = {
    { claim = "throughput rises with the batch size", check = rises_with_batch },
    { claim = "ZeRO-3 needs 40 to 60 % less memory than ZeRO-2", check = zero_ratio("peak_memory_bytes", 0.4, 0.6) },
    { claim = "ZeRO-3 needs less memory than ZeRO-2", check = zero_ratio("peak_memory_bytes", nil, 0.999) },
    { claim = "ZeRO-3 communicates 2 to 3 times as long as ZeRO-2", check = zero_ratio("comm_work_ms", 2, 3) },
    { claim = "ZeRO-3 sends more bytes than ZeRO-2", check = zero_ratio("comm_bytes", 1.001) },
    { claim = "ZeRO-2 is generally faster", check = zero_ratio("tokens_per_s", nil, 1) },
    { claim = "the GPU is used above 70 %", check = claims.bound { metric = "gpu_utilization_percent", least = 70, unit = "%" } },
    { claim = "data loading is below 10 %", check = claims.bound { metric = "data_share_percent", most = 10, unit = "%" } },
  },
}, ...)
