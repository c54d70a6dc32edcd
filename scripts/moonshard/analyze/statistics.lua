--- Noise of measured times: confidence intervals of medians and of their ratios, and signs of a busy machine.
-- Intervals are percentile bootstraps over the measured steps of a record (docs/analysis.md says what they cover). The
-- generator is fixed, so equal records have equal intervals; the viewer has the same ones (runtime/analysis/bootstrap.h). What
-- takes no sample per step (memory, bytes) has none.
local lists = require "moonshard.lists"
local native = require("moonshard.native").analysis
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

--- Share of resamples inside an interval, in percent; how many resamples; fewer steps than `least_steps` have no interval.
M.level, M.resamples, M.least_steps = native.bootstrap.level, native.bootstrap.resamples, native.bootstrap.least_samples

--- An IQR above this share of the median is a sign of other work on the machine.
M.noisy_share = 0.1

--- A single computing thread that gets less than this share of a core waits for other programs, in percent.
M.starved_cpu_percent = 80

--- Other programs that took more than this share of the machine's cores during the measured steps disturbed them, in percent.
M.busy_cores_percent = 50

--- A GPU that another program used more than this before the experiment, in percent.
M.busy_gpu_percent = 10

--- Which statistic of the step times a figure is, and whether it is larger where steps are shorter.
local timed = {
  median_time_ms = { statistic = "median" }, avg_time_ms = { statistic = "mean" },
  tokens_per_s = { statistic = "mean", is_rate = true }, samples_per_s = { statistic = "mean", is_rate = true },
}

--- Median or mean of samples.
-- @tparam string statistic "median" or "mean"
M.value = native.statistic

local function no_interval(count) return nil, ("n = %d, no interval"):format(count) end

--- Interval of the median or mean of samples.
-- @tparam {number,...} samples positive
-- @tparam[opt="median"] string statistic
-- @treturn table value, low, high, count; nil below three samples
-- @treturn string why there is none: "n = 2, no interval"
function M.interval(samples, statistic)
  statistic = statistic or "median"
  local found = native.interval(samples, statistic)
  if not found then return no_interval(#samples) end
  found.count = #samples
  return found
end

--- Interval of the ratio of two medians or means; both lists are resampled, independently.
-- @treturn table value, low, high, count (of the shorter list); nil where one list has fewer than three samples
-- @treturn string why there is none
function M.ratio_interval(of, to, statistic)
  statistic = statistic or "median"
  local count = math.min(#of, #to)
  local found = native.ratio_interval(of, to, statistic)
  if not found then return no_interval(count) end
  found.count = count
  return found
end

--- Times of a point's measured steps in ms, in their order; empty where the record has none.
function M.samples(point)
  local samples = {}
  local function add(value)
    value = plot_points.number(value)
    if value and value > 0 then samples[#samples + 1] = value end
  end
  for _, value in ipairs(plot_points.part(point, "time", "samples_ms")) do add(value) end
  if #samples > 0 then return samples end
  for _, step in ipairs(plot_points.part(point, "steps")) do
    if type(step) == "table" and step.warmup ~= true then add(step.time_ms) end
  end
  return samples
end

--- An interval of step times as one of a figure that is proportional to them, or to their inverse.
local function of_figure(found, figure, is_rate)
  local low, high = found.low / found.value, found.high / found.value
  if is_rate then low, high = 1 / high, 1 / low end
  return { value = figure, low = figure * low, high = figure * high, count = found.count }
end

--- Interval of a figure of a point.
-- @tparam string metric e.g. "median_time_ms"
-- @treturn table value, low, high, count; nil where the figure has no noise that is known of
-- @treturn string why a measured time has none; nil for figures without a sample per step, and records without step times
function M.of_metric(point, metric)
  local kind, figure = timed[metric], plot_points.metric(point, metric)
  local samples = M.samples(point)
  if not kind or not figure or #samples == 0 then return nil end
  local found, reason = M.interval(samples, kind.statistic)
  if not found then return nil, reason end
  return of_figure(found, figure, kind.is_rate)
end

--- Interval of the ratio of a figure of two points.
-- @treturn table value, low, high, count; nil where there is none
-- @treturn string as of M.of_metric
function M.of_ratio(point, partner, metric)
  local kind, of, to = timed[metric], plot_points.metric(point, metric), plot_points.metric(partner, metric)
  local first, second = M.samples(point), M.samples(partner)
  if not kind or not of or not to or to == 0 or #first == 0 or #second == 0 then return nil end
  local found, reason = M.ratio_interval(first, second, kind.statistic)
  if not found then return nil, reason end
  return of_figure(found, of / to, kind.is_rate)
end

--- Whether an interval has a threshold inside: what is measured does not say on which side of it the figure lies.
function M.contains(interval, threshold) return interval.low <= threshold and threshold <= interval.high end

--- "255.9 … 261.3".
-- @tparam[opt] function shown text of an end; without it with the digits of tables
function M.text(interval, shown)
  shown = shown or text_table.cell_text
  return ("%s … %s"):format(shown(interval.low), shown(interval.high))
end

--- A ratio with the digits that tell it from 1: "1.004".
function M.ratio_digits(ratio) return (ratio < 10 and "%.3f" or "%.4g"):format(ratio) end

--- Text of the column beside a median: its interval, or why it has none; nil where the record has no step times.
function M.median_text(point)
  local found, reason = M.of_metric(point, "median_time_ms")
  return found and M.text(found) or reason
end

--- Text of the column beside a ratio of two points' times: its interval, and whether that is noise.
-- @tparam[opt] function shown text of a ratio; without it M.ratio_digits
function M.ratio_text(point, partner, shown)
  local found, reason = M.of_ratio(point, partner, "median_time_ms")
  if not found then return reason end
  return M.text(found, shown or M.ratio_digits) .. (M.contains(found, 1) and ", within noise" or "")
end

--- Spread of the middle half of a point's steps, in ms; nil below two steps, where there is none.
function M.iqr_ms(point)
  local low, high = plot_points.time_quartiles(point)
  return low and high - low or nil
end

--- What the record says of the machine at that time; nil where it was quiet, or nobody looked. With several ranks the others' own
-- time is that of other processes, and says nothing.
local function recorded_load(point)
  local load, options = plot_points.part(point, "load"), plot_points.list(point.options)
  local processes, used = plot_points.number(load.gpu_processes), plot_points.number(load.gpu_percent_before)
  if processes and processes > 0 then
    return ("%d other process%s on the GPU before it began%s"):format(processes, processes > 1 and "es" or "",
      used and (", used %.0f %%"):format(used) or "")
  end
  if used and used > M.busy_gpu_percent then return ("the GPU was used %.0f %% before it began"):format(used) end
  local cores, others = plot_points.number(load.cores), plot_points.number(load.other_cpu_percent)
  if (plot_points.number(options.nproc) or 1) > 1 or not cores or not others then return nil end
  if others > M.busy_cores_percent * cores then
    local before, after = plot_points.number(load.load_before), plot_points.number(load.load_after)
    return ("other processes used %.1f of %d cores%s"):format(others / 100, cores,
      before and after and (", load average %.1f before and %.1f after"):format(before, after) or "")
  end
end

--- Why a point's times may be those of a busy machine; nil where nothing says so.
local function sign_of_load(point)
  local recorded = recorded_load(point)
  if recorded then return recorded end
  local median, iqr = plot_points.metric(point, "median_time_ms"), M.iqr_ms(point)
  if median and median > 0 and iqr and iqr > M.noisy_share * median then
    local cold = plot_points.number(plot_points.list(point.options).warmup) == 0
    return ("IQR %.0f %% of the median%s"):format(100 * iqr / median, cold and " without warm-up" or "")
  end
  local options, cpu = plot_points.list(point.options), plot_points.metric(point, "cpu_percent")
  local waits = (plot_points.number(options.nproc) or 1) > 1 or (plot_points.metric(point, "data_share_percent") or 0) > 10
  if options.device == "cpu" and cpu and cpu < M.starved_cpu_percent and not waits then
    return ("only %.0f %% of one core"):format(cpu)
  end
end

--- One line that warns of a busy machine; nil where no good point shows a sign of it.
-- @tparam Runs results
function M.warning(results)
  local good = lists.select(results.points, function(point) return point.status == "ok" end)
  local signs = {}
  for _, point in ipairs(good) do
    local sign = sign_of_load(point)
    if sign then signs[#signs + 1] = ("%s: %s"):format(plot_points.name(point, plot_points.other_axes(results), true), sign) end
  end
  if #signs == 0 then return nil end
  local shown = table.concat(signs, "; ", 1, math.min(#signs, 3)) .. (#signs > 3 and ("; and %d more"):format(#signs - 3) or "")
  return ("Warning: %d of %d points look disturbed (%s). Was the machine busy? Measure again on an idle one, with more steps or warm-up.")
    :format(#signs, #good, shown)
end

return M
