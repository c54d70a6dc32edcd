--- Records as the five documents' sweeps write them, made up but of their shape: for tests of figures that would take
-- minutes to measure. Each function returns results as ms.load gives them (path, name, axes, points, select).
local M = {}

local MiB = 2 ^ 20
local Results = {}
Results.__index = Results

function Results:select(status)
  local chosen = {}
  for _, point in ipairs(self.points) do
    if point.status == status then chosen[#chosen + 1] = point end
  end
  return chosen
end

--- Repeatable noise between 0 and 1.
local function noise(seed)
  local value = math.sin(seed * 12.9898) * 43758.5453
  return value - math.floor(value)
end

local canonical = { no_dp = "none", vanilla = "none", ghost_fsdp = "ghost", flash_fsdp = "flash", flash_clip = "flash",
  flash_bookkeeping_fsdp = "flash_bookkeeping", flash_clip_bookkeeping = "flash_bookkeeping" }

local function summary(samples)
  local sorted = {}
  for i, sample in ipairs(samples) do sorted[i] = sample end
  table.sort(sorted)
  local middle = sorted[math.ceil(#sorted / 2)]
  return { count = #samples, mean = middle, median = middle, min = sorted[1], max = sorted[#sorted], p95 = sorted[#sorted], iqr = 0 }
end

--- Phases of a step in ms for an engine at a size; `t` is about the tokens of a batch.
local function phases_of(mode, t, ranks)
  local phases, order = {}, {}
  local function add(name, ms)
    phases[name] = ms
    order[#order + 1] = name
  end
  add("data", 0.4)
  add("forward", 0.02 * t)
  local norms = { none = 0, ghost = 6e-6 * t * t, flash = 0.02 * t, bookkeeping = 6e-6 * t * t, flash_bookkeeping = 0.02 * t,
    materialize = 0.03 * t }
  add("backward", 0.04 * t + (norms[mode] or 0))
  if mode ~= "none" then
    if ranks > 1 then add("norm_reduce", 0.3) end
    add("clip_factors", 0.05)
    if mode:find("bookkeeping") or mode == "materialize" then add("clipped_sum", 0.015 * t) else add("second_backward", 0.035 * t) end
  end
  if ranks > 1 then add("reduce", 2) end
  if mode ~= "none" then add("noise", 1.1) end
  add("optimizer", 1.6)
  return phases, order, norms[mode] or 0
end

local owners = { "parameters", "gradients", "optimizer_state", "activations", "engine_kept", "norm_samples", "temporaries_ggt",
  "temporaries_aat", "engine_temporaries", "communication", "data", "other", "rest" }

local function memory_of(mode, t, model_bytes, phases, order)
  local grams = (mode == "ghost" or mode == "bookkeeping") and t * t * 16 or 0
  local kept = mode:find("bookkeeping") and 9000 * t or mode == "materialize" and 2 * model_bytes or 0
  local held = { parameters = model_bytes, gradients = model_bytes, optimizer_state = 2 * model_bytes, activations = 30000 * t,
    engine_kept = kept, norm_samples = mode ~= "none" and 4096 or 0, temporaries_ggt = grams, temporaries_aat = grams,
    engine_temporaries = mode:find("flash") and 2 * MiB or 0, communication = 0, data = 8 * t, other = 0.5 * MiB, rest = 0.2 * MiB }
  local breakdown, peak = {}, 0
  for _, owner in ipairs(owners) do
    breakdown[#breakdown + 1] = { owner = owner, bytes = held[owner] }
    peak = peak + held[owner]
  end
  local timeline = { ms = {}, total = {}, phase = {}, owners = {} }
  for _, owner in ipairs(owners) do timeline.owners[owner] = {} end
  local ms, started = 0, {}
  for _, phase in ipairs(order) do
    started[phase] = true
    local steps = 12
    for k = 1, steps do
      local n, share = #timeline.ms + 1, k / steps
      timeline.ms[n], timeline.phase[n] = ms, phase
      ms = ms + phases[phase] / steps
      local total = 0
      for _, owner in ipairs(owners) do
        local bytes = held[owner]
        if owner == "activations" then
          bytes = phase == "forward" and bytes * share or (phase == "backward" or phase == "second_backward") and bytes * (1 - share) or 0
        elseif owner == "gradients" and not started.backward then bytes = 0
        elseif owner == "gradients" and phase == "backward" then bytes = bytes * share
        elseif owner:find("^temporaries") then bytes = phase == "backward" and k % 3 == 0 and bytes or 0
        elseif owner == "engine_kept" then bytes = phase == "backward" and bytes * share or started.clipped_sum and 0 or 0 end
        timeline.owners[owner][n] = bytes
        total = total + bytes
      end
      timeline.total[n] = total
    end
  end
  return peak, { peak_bytes = peak, peak_phase = "backward", breakdown = breakdown, rest_bytes = held.rest, timeline = timeline }
end

local function stages_of(peak, held)
  local stages = {}
  for i, stage in ipairs { "start", "after data", "after model creation", "after warmup", "end" } do
    local bytes = ({ 0, 0.05, 0.4, 0.7, 0.7 })[i] * held
    stages[i] = { stage = stage, rank = 0, allocated_bytes = bytes, max_allocated_bytes = i > 3 and peak or bytes,
      reserved_bytes = bytes * 1.2, max_reserved_bytes = peak * 1.2, rss_bytes = peak * 2 }
  end
  return stages
end

--- A good point's record.
local function good(asked, options, tokens, model_bytes, seed)
  local ranks = options.nproc or 1
  local phases, order, norm_ms = phases_of(options.mode, tokens, ranks)
  local step, samples = 0.2, {}
  for _, ms in pairs(phases) do step = step + ms end
  for i = 1, 9 do samples[i] = step * (0.96 + 0.1 * noise(seed * 31 + i)) end
  local peak, memory = memory_of(options.mode, tokens, model_bytes, phases, order)
  local median = summary(samples).median
  local timed, layers = {}, {}
  for name, ms in pairs(phases) do timed[name] = summary { ms, ms, ms } end
  for i = 0, 11 do
    for _, layer in ipairs { "attention.wq", "attention.wk", "attention.wo", "feed_forward.w1", "feed_forward.w2", "norm" } do
      local ms = norm_ms / 72 * (0.3 + noise(i + #layer))
      layers[#layers + 1] = { layer = ("layers.%d.%s"):format(i, layer), kind = "linear", norm_ms = ms }
    end
  end
  local work = ranks > 1 and 3 + 0.2 * noise(seed) or nil
  local metrics = { avg_time_ms = median, median_time_ms = median, peak_memory_bytes = peak, peak_memory_mb = peak / MiB,
    peak_memory_gb = peak / 2 ^ 30, tokens_per_s = 1000 * tokens / median, samples_per_s = 1000 * options.batch_size / median,
    cpu_percent = 90 + 100 * noise(seed), gpu_utilization_percent = options.device == "cuda" and 40 + 55 * noise(seed) or nil,
    data_share_percent = 2, comm_bytes = work and model_bytes * 2, comm_work_ms = work, comm_exposed_ms = work and work * 0.4 }
  return { id = ("point%d"):format(seed), status = "ok", error = "", asked = asked, options = options, metrics = metrics,
    result = { status = "ok", options = options, metrics = metrics, memory = memory, memory_stages = stages_of(peak, 4 * model_bytes),
      time = { step_ms = summary(samples), phases_ms = timed, phase_order = order, samples_ms = samples },
      norms_ms = norm_ms > 0 and { ["local"] = norm_ms, stacking = 0.01, reduce = 0.1, final = 0.02 } or nil,
      layers = norm_ms > 0 and layers or nil } }
end

local function failed(status, asked, options, seed)
  return { id = ("point%d"):format(seed), status = status, error = "asked for 2 GiB", asked = asked, options = options, metrics = {},
    result = { status = status, options = options, phase = "backward" } }
end

local function results(name, axes, points)
  return setmetatable({ path = "/nowhere", name = name, axes = axes, points = points }, Results)
end

--- modes x lengths, the longest of ghost out of memory (document 000).
function M.llama(modes, lengths)
  local points = {}
  for _, mode in ipairs(modes or { "no_dp", "ghost_fsdp", "flash_fsdp" }) do
    for _, length in ipairs(lengths or { 1024, 2048, 4096 }) do
      local seed, asked = #points + 1, { mode = mode, seq_length = length }
      local options = { model = "llama3.1-8b", mode = canonical[mode] or mode, seq_length = length, batch_size = 2, nproc = 2,
        parallel = "fsdp", device = "cuda", task = "classify" }
      local out_of_memory = mode == "ghost_fsdp" and length >= 4096
      points[seed] = out_of_memory and failed("oom", asked, options, seed) or good(asked, options, 2 * length, 4096 * MiB, seed)
    end
  end
  return results("fsdp_llama3", { "mode", "seq_length" }, points)
end

--- Flash engines over growing lengths, the last one killed by the clock (document 001).
function M.bottleneck()
  local found = M.llama({ "flash_fsdp", "flash_bookkeeping_fsdp" }, { 1024, 2048, 4096, 8192, 16384 })
  local last = found.points[#found.points]
  found.points[#found.points] = failed("timeout", last.asked, last.options, #found.points)
  return found
end

--- Ways to shard x batch x accumulation, the largest batches out of memory or never tried (document 002).
function M.zero(device)
  local points = {}
  for _, sharding in ipairs { "zero2", "zero3" } do
    for _, batch in ipairs { 2, 4, 8, 16 } do
      for _, accum in ipairs { 1, 2, 4 } do
        local seed, asked = #points + 1, { sharding = sharding, batch_size = batch, grad_accum = accum }
        local options = { model = "qwen2.5-1.5b", mode = "none", sharding = sharding, batch_size = batch, grad_accum = accum, nproc = 2,
          seq_length = 2048, parallel = "fsdp", device = device or "cuda", task = "lm" }
        local bytes = (sharding == "zero2" and 3000 or 1500) * MiB
        if batch == 16 and sharding == "zero2" then
          points[seed] = failed(accum == 1 and "oom" or "skipped", asked, options, seed)
        else
          points[seed] = good(asked, options, batch * accum * 512, bytes, seed)
        end
      end
    end
  end
  return results("zero_compare", { "sharding", "batch_size", "grad_accum" }, points)
end

--- DDP and FSDP with one choice changed at a time (document 003).
function M.linear()
  local points = {}
  for _, choice in ipairs {
    { "ddp", "module", "pre", false, false }, { "fsdp", "module", "pre", false, false }, { "fsdp", "size", "pre", false, false },
    { "fsdp", "none", "pre", false, false }, { "fsdp", "module", "post", false, false }, { "fsdp", "module", "none", false, false },
    { "fsdp", "module", "pre", true, false }, { "fsdp", "module", "pre", false, true },
  } do
    local seed = #points + 1
    local asked = { parallel = choice[1], wrap = choice[2], backward_prefetch = choice[3], forward_prefetch = choice[4],
      cpu_offload = choice[5] }
    local options = { model = "linear", mode = "none", batch_size = 8192, nproc = 8, device = "cuda", task = "regress" }
    for key, value in pairs(asked) do options[key] = value end
    points[seed] = seed == 4 and failed("failed", asked, options, seed)
      or good(asked, options, 800, (choice[1] == "ddp" and 6000 or 800 + 200 * noise(seed)) * MiB, seed)
  end
  return results("fsdp_linear", { "parallel", "wrap", "backward_prefetch", "forward_prefetch", "cpu_offload" }, points)
end

--- Five ways to train a diffusion transformer (document 004).
function M.dit()
  local points = {}
  for _, mode in ipairs { "vanilla", "ghost", "flash_clip", "bookkeeping", "flash_clip_bookkeeping" } do
    local seed = #points + 1
    local options = { model = "dit-l/8", mode = canonical[mode] or mode, batch_size = 2, seq_length = 1024, device = "cuda",
      task = "denoise" }
    points[seed] = good({ mode = mode }, options, 2048, 120 * MiB, seed)
  end
  return results("dit_memory", { "mode" }, points)
end

--- One experiment that differs from nothing.
function M.single()
  local found = M.dit()
  found.points, found.axes = { found.points[2] }, {}
  return found
end

return M
