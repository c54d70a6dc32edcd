--- Question: what does ZeRO-3 save in memory over ZeRO-2, and what does it cost in communication and speed? (document 002)
-- Inputs: sample text that it makes, or --data-folder with .txt, .json and .jsonl. Outputs: comparison_results/ with a run folder,
-- comparison_table.csv, raw_metrics.json, {strategy}_bs{B}_accum{A}_result.json, five figures, what bounds each configuration and what to
-- do about it, the largest batch of each strategy, and what became of the document's claims.
-- Run: moonshard sweep zero_compare [2] [--batch_sizes 2 4 8 16] [--grad_accum_steps 1 2 4] [--num_steps=50] [--strategy zero2] [--help]
local ms = require "moonshard"
local claims = require "moonshard.studies.claims"
local document = require "moonshard.studies.document"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local sample_text = require "moonshard.studies.sample_text"
local statistics = require "moonshard.analyze.statistics"
local usage = require "moonshard.usage"
local zero_tables = require "moonshard.studies.zero_tables"

local grid = { sharding = { "zero2", "zero3" }, batch_size = { 2, 4, 8, 16 }, grad_accum = { 1, 2, 4 } }

local function zero_ratio(metric, least, most, would_hold)
  return claims.ratio { axis = "sharding", of = "zero3", to = "zero2", metric = metric, least = least, most = most,
    would_hold = would_hold }
end

--- ZeRO-3 can save no more than the parameters that ZeRO-2 holds whole beyond its part.
local function what_zero3_can_save(_, zero2)
  local gathered, peak = 0, zero2 and plot_points.part(zero2, "memory").peak_bytes
  for _, row in ipairs(zero2 and plot_points.part(zero2, "memory", "breakdown") or {}) do
    if row.owner == "gathered_parameters" then gathered = row.bytes end
  end
  if not peak or peak == 0 then return nil end
  return ("ZeRO-3 saves of ZeRO-2's peak at most its gathered parameters, here %.0f %%: 40 to 60 %% less needs a model and a batch at "
    .. "which they are that much"):format(100 * gathered / peak)
end

--- Does tokens/s rise with every larger batch, at each accumulation and strategy? A doubling whose interval contains 1 decides nothing.
local function rises_with_batch(runs)
  local risen, fallen, unsure, first = 0, 0, 0, nil
  local points = runs:select("ok")
  for _, a in ipairs(points) do
    for _, b in ipairs(points) do
      if a.options.sharding == b.options.sharding and a.options.grad_accum == b.options.grad_accum
        and b.options.batch_size == 2 * a.options.batch_size and a.metrics.tokens_per_s and b.metrics.tokens_per_s then
        local interval = statistics.of_ratio(b, a, "tokens_per_s")
        if interval and statistics.contains(interval, 1) then
          unsure = unsure + 1
        elseif b.metrics.tokens_per_s > a.metrics.tokens_per_s then
          risen = risen + 1
        else
          fallen = fallen + 1
          first = first or ("%s: %.3gx of batch %d"):format(plot_points.name(b, plot_points.varying(runs), true),
            b.metrics.tokens_per_s / a.metrics.tokens_per_s, a.options.batch_size)
        end
      end
    end
  end
  local all = risen + fallen + unsure
  if all == 0 then return nil, "no two batch sizes were run" end
  local text = ("%d of %d doublings of the batch raise tokens/s, %d lower it, %d within noise"):format(risen, all, fallen, unsure)
  if fallen > 0 then
    return false, ("%s; why: %s: the GPU is full already, and a larger batch adds work, not use; it would hold at smaller batches")
      :format(text, first)
  end
  if unsure > 0 then return "undecided", text end
  return true, text
end

--- Sample text and its tokenizer, unless the user names data, or asks for random tokens.
local function add_data(plan, given)
  local folder = given.data_folder
  if folder == "none" then return end
  if folder and not native.launch.exists(folder) then
    usage.fail("zero_compare: option '--data-folder': expected a folder, or none for random tokens, got '%s', which is not there", folder)
  end
  plan.data_folder = folder
  if folder then return end
  local tokenizer
  plan.data_folder, tokenizer = sample_text.write((given.output_dir or "comparison_results") .. "/sample_text", given.dry_run)
  if not given.tokenizer then plan.tokenizer = tokenizer end
  print(("zero_compare: sample text in %s, tokenizer %s; --data-folder DIR for your own, --data-folder none for random tokens"):format(
    plan.data_folder, plan.tokenizer))
end

--- The largest batch of each strategy, by trying. On a CPU under an explicit limit: host memory has no hard limit.
local max_batch, search_limit_mb
local function find_max_batch(plan)
  max_batch = {}
  for _, sharding in ipairs(plan.grid.sharding or { plan.sharding }) do
    local options = lists.merged(plan, { sharding = sharding, grad_accum = 1, iters = 1, warmup = 1, name = "max_batch_" .. sharding,
      low = 8, memory_limit_mb = plan.memory_limit_mb or search_limit_mb })
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
    { name = "data_folder", kind = "text",
      doc = "folder with .txt, .json and .jsonl to train on instead of the sample text; none: random tokens" },
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
    given.max_batch_asked = given.max_batch
    if given.max_batch == nil then given.max_batch = not given.batch_size end
    plan.nproc = given.nproc_ranks or plan.nproc
    if given.compile then print("zero_compare: compile: unavailable (no torch.compile without Python); kernels are fused by hand") end
    add_data(plan, given)
    return plan
  end,
  seed_result = zero_tables.seed_result,
  report = function(runs) return { zero_tables.short(runs), ms.analyze.bottleneck(runs) } end,
  after = function(runs, given, plan)
    -- Of a run in parts only after the last one.
    local is_whole = runs:count("planned") == 0 or given.max_batch_asked
    if given.max_batch and plan and is_whole then find_max_batch(plan) end
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
    { claim = "ZeRO-3 needs 40 to 60 % less memory than ZeRO-2", check = zero_ratio("peak_memory_bytes", 0.4, 0.6, what_zero3_can_save) },
    { claim = "ZeRO-3 needs less memory than ZeRO-2", check = zero_ratio("peak_memory_bytes", nil, 0.999) },
    { claim = "ZeRO-3 communicates 2 to 3 times as long as ZeRO-2", check = zero_ratio("comm_work_ms", 2, 3,
      "by bytes, ZeRO-3 gathers parameters twice and reduces gradients once, ZeRO-2 gathers once: 1.5 times as much in one dtype") },
    { claim = "ZeRO-3 sends more bytes than ZeRO-2", check = zero_ratio("comm_bytes", 1.001) },
    { claim = "ZeRO-2 is generally faster", check = zero_ratio("tokens_per_s", nil, 1) },
    { claim = "the GPU is used above 70 %", check = claims.bound { metric = "gpu_utilization_percent", least = 70, unit = "%" } },
    { claim = "data loading is below 10 %", check = claims.bound { metric = "data_share_percent", most = 10, unit = "%" } },
  },
}, ...)
