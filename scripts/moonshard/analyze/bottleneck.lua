--- What bounds a step: rules that turn figures of a record into cause, evidence and advice. They are those of the
-- guide on profiling flash clipping (document 001), with the thresholds named here, and two of the ZeRO comparison (002).
local guard = require "moonshard.options_guard"
local scaling = require "moonshard.analyze.scaling"

local M = {}

--- Where a share counts as high; percent of the step unless said otherwise.
M.thresholds = {
  communication_percent = 20,   -- communication that nothing hides
  utilization_percent = 70,     -- the GPU counts as idle below this
  norm_reduce_percent = 5,      -- the sum of norms over ranks, which every rank waits for
  norms_percent = 25,           -- per-sample norms of all layers
  layer_times_median = 3,       -- a layer's norm against the median layer's
  layer_percent_of_norms = 20,  -- and against all norms together
  second_backward_percent = 25,
  kept_percent_of_peak = 10,    -- what an engine keeps until the factors are known
  rise_percent_of_peak = 10,    -- memory at the end of backward above that at its start
  data_percent = 10,
}

local function phase(point, name)
  local phases = point.result.time and point.result.time.phases_ms
  return phases and phases[name] and phases[name].median
end

local function percent_of_step(point, ms)
  local step = point.metrics.median_time_ms
  return ms and step and step > 0 and 100 * ms / step or nil
end

--- Time of all norms; nil where layers were not timed.
local function norms_ms(point)
  for _, quantity in ipairs(scaling.quantities) do
    if quantity.name == "norms" then return quantity.read(point) end
  end
end

--- Growth of memory through backward, from the timeline: bytes at its last sample minus those at its first.
local function rise_in_backward(point)
  local timeline = point.result.memory and point.result.memory.timeline
  if not timeline or not timeline.phase or not timeline.total then return nil end
  local first, last
  for i, name in ipairs(timeline.phase) do
    if name == "backward" then
      first = first or timeline.total[i]
      last = timeline.total[i]
    end
  end
  return first and last - first
end

local function slowest_layer(point)
  local times, slowest = {}, nil
  for _, layer in ipairs(point.result.layers or {}) do
    if type(layer.norm_ms) == "number" then
      times[#times + 1] = layer.norm_ms
      if not slowest or layer.norm_ms > slowest.norm_ms then slowest = layer end
    end
  end
  if #times < 3 then return nil end
  table.sort(times)
  local sum = 0
  for _, time in ipairs(times) do sum = sum + time end
  return slowest, times[math.ceil(#times / 2)], sum
end

--- Each rule: cause, advice, and a test that returns evidence as text, or nil.
M.rules = {
  { name = "communication", cause = "Communication is waited for (document 001: blocking all-reduce)",
    advice = { "overlap it: forward_prefetch = true, backward_prefetch = pre, limit_all_gathers = false (--compare grouped_collectives)",
      "send less: sharding = zero2 instead of zero3, reduce_dtype = bfloat16, no_sync = true with grad_accum",
      "a faster link between GPUs (NVLink, InfiniBand)" },
    test = function(point, limit)
      local share = point.metrics.comm_share_percent
      if not share or share < limit.communication_percent then return nil end
      local used = point.metrics.gpu_utilization_percent
      if used and used >= limit.utilization_percent then return nil end
      return ("%.0f %% of the step is exposed communication%s"):format(share, used and (", GPU used %.0f %%"):format(used)
        or ", GPU utilisation not measured")
    end },
  { name = "norm_reduce", cause = "Norms are summed over ranks and every rank waits for that (document 001)",
    advice = { "norm_reduce = local: data-parallel ranks own different samples, their norms are whole without it (and only then private)",
      "norms for statistics travel on a group of their own, asynchronously (--compare async_norms)" },
    test = function(point, limit)
      local share = percent_of_step(point, phase(point, "norm_reduce"))
      if share and share >= limit.norm_reduce_percent then return ("%.1f %% of the step is the reduce of norms"):format(share) end
    end },
  { name = "kept_activations", cause = "Memory climbs through backward: what layers hand over is kept (document 001)",
    advice = { "an engine that keeps nothing: ghost or flash instead of bookkeeping (--compare eager_cleanup, streaming_norms)",
      "checkpointing = block: a block's input instead of its insides (--compare checkpointing)",
      "engine auto with memory_budget_mb" },
    test = function(point, limit)
      local peak, kept = point.metrics.peak_memory_bytes, point.metrics.engine_kept_bytes
      local rise = rise_in_backward(point)
      if not peak then return nil end
      local parts = {}
      if kept and kept >= peak * limit.kept_percent_of_peak / 100 then
        parts[#parts + 1] = ("the engine keeps %.1f MiB, %.0f %% of the peak"):format(kept / 2 ^ 20, 100 * kept / peak)
      end
      if rise and rise >= peak * limit.rise_percent_of_peak / 100 then
        parts[#parts + 1] = ("memory rises by %.1f MiB through backward"):format(rise / 2 ^ 20)
      end
      if #parts > 0 then return table.concat(parts, ", ") end
    end },
  { name = "norms", cause = "Norms take a large part of the step (document 001: kernel overhead)",
    advice = { "flash_algorithm = width at long T, input_length at short T, or auto (--compare algorithm)",
      "another tile_size (--compare tile_size)", "fused kernels: flash instead of ghost (--compare fusion)" },
    test = function(point, limit)
      local share = percent_of_step(point, norms_ms(point))
      if share and share >= limit.norms_percent then return ("norms are %.0f %% of the step"):format(share) end
    end },
  { name = "layer", cause = "Some layer's norm takes more than its share (document 001)",
    advice = { "look at its sizes in layers.csv: a wide layer wants flash_algorithm = input_length, a long sequence wants width",
      "engine auto chooses per layer" },
    test = function(point, limit)
      local layer, median, sum = slowest_layer(point)
      if not layer or median <= 0 then return nil end
      if layer.norm_ms < limit.layer_times_median * median then return nil end
      if layer.norm_ms < sum * limit.layer_percent_of_norms / 100 then return nil end
      return ("%s (%s): %.3g ms, %.0f times the median layer, %.0f %% of all norms"):format(layer.layer, layer.kind or "?", layer.norm_ms,
        layer.norm_ms / median, 100 * layer.norm_ms / sum)
    end },
  { name = "second_backward", cause = "The second backward pass",
    advice = { "one pass: bookkeeping or flash_bookkeeping, at the cost of what they keep" },
    test = function(point, limit)
      local share = percent_of_step(point, phase(point, "second_backward"))
      if share and share >= limit.second_backward_percent then return ("%.0f %% of the step is the second backward pass"):format(share) end
    end },
  { name = "data", cause = "The step waits for data (document 002: data loading below 10 %)",
    advice = { "a larger batch_size; data prepared before the run" },
    test = function(point, limit)
      local share = point.metrics.data_share_percent
      if share and share >= limit.data_percent then return ("%.0f %% of the step is data"):format(share) end
    end },
  { name = "idle", cause = "The GPU is idle although nothing is waited for (document 002: utilisation above 70 %)",
    advice = { "a larger batch_size or seq_length: the work per launch is too small" },
    test = function(point, limit)
      local used = point.metrics.gpu_utilization_percent
      if not used or used >= limit.utilization_percent then return nil end
      if (point.metrics.comm_share_percent or 0) >= limit.communication_percent then return nil end
      if (point.metrics.data_share_percent or 0) >= limit.data_percent then return nil end
      return ("GPU used %.0f %%, communication %.0f %%, data %.0f %%"):format(used, point.metrics.comm_share_percent or 0,
        point.metrics.data_share_percent or 0)
    end },
}

local Report = {}
Report.__index = Report

--- Cause, evidence of each point, advice; the causes with the most evidence first.
function Report:__tostring()
  local lines = { "Bottlenecks: cause, evidence, advice" }
  for _, finding in ipairs(self.findings) do
    lines[#lines + 1] = "\ncause     " .. finding.cause
    for i, item in ipairs(finding.evidence) do
      lines[#lines + 1] = (i == 1 and "evidence  " or "          ") .. item.point .. ": " .. item.text
    end
    for i, text in ipairs(finding.advice) do lines[#lines + 1] = (i == 1 and "advice    " or "          ") .. text end
  end
  if #self.findings == 0 then lines[#lines + 1] = "\nnothing stands out: no share of any step is above its threshold" end
  for _, note in ipairs(self.notes) do lines[#lines + 1] = "\nnote      " .. note end
  return table.concat(lines, "\n")
end

--- Applies the rules to every point with status ok.
-- @tparam Runs results
-- @tparam[opt] table options thresholds: names of M.thresholds with other values
-- @treturn Report findings (name, cause, evidence = { point, text }, advice), notes; prints as a report
function M.analyze(results, options)
  options = guard.check("ms.analyze.bottleneck", options, { "thresholds" }, 2)
  local limit = {}
  for name, value in pairs(M.thresholds) do limit[name] = value end
  for name, value in pairs(guard.check("ms.analyze.bottleneck: thresholds", options.thresholds, (function()
    local names = {}
    for name in pairs(M.thresholds) do names[#names + 1] = name end
    table.sort(names)
    return names
  end)(), 2)) do limit[name] = value end
  local label_of = require("moonshard.analyze.memory").label_of
  local findings, measured_layers, points = {}, false, results:select("ok")
  for _, rule in ipairs(M.rules) do
    local evidence = {}
    for _, point in ipairs(points) do
      measured_layers = measured_layers or point.result.layers ~= nil
      local text = rule.test(point, limit)
      if text then evidence[#evidence + 1] = { point = label_of(results, point), text = text } end
    end
    if #evidence > 0 then findings[#findings + 1] = { name = rule.name, cause = rule.cause, evidence = evidence, advice = rule.advice } end
  end
  table.sort(findings, function(a, b)
    if #a.evidence ~= #b.evidence then return #a.evidence > #b.evidence end
    return a.name < b.name
  end)
  local notes = {}
  if not measured_layers then notes[1] = "no layer was timed; profile = layers does that" end
  return setmetatable({ findings = findings, notes = notes }, Report)
end

return M
