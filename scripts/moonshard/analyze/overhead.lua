--- What each point costs beyond a baseline with the same other options: memory in GiB, time in percent.
-- The comparison itself is runtime/analysis/overhead.h, which the viewer uses, too.
local guard = require "moonshard.options_guard"
local lazy_points = require "moonshard.lazy_points"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local statistics = require "moonshard.analyze.statistics"
local text_table = require "moonshard.text_table"

local M = {}

--- The engine that a name stands for: "no_dp" is the seed documents' name for "none".
function M.canonical_mode(name) return type(name) == "string" and native.analysis.canonical_mode(name) or name end

--- The axis and the value that results are compared with: as asked, else the sweep's own, else plain training.
-- @tparam Runs results
-- @tparam table options axis, baseline
-- @treturn string, any
function M.baseline_of(results, options)
  local own = results.baseline or {}
  local axis, baseline = options.axis, options.baseline
  if axis == nil then axis = baseline == nil and own.axis or "mode" end
  if baseline == nil and own.axis == axis then baseline = own.value end
  if baseline == nil then baseline = "none" end
  if axis == "mode" then baseline = M.canonical_mode(baseline) end
  return axis, baseline
end

--- What every point costs beyond its partner: the first point that equals it in all axes but `axis`, where it has the
-- baseline's value.
-- @tparam Runs results
-- @tparam string|table axis e.g. "mode"; or a point, the partner of all
-- @param value of the baseline on that axis
-- @treturn table by point: partner (a point), is_baseline, memory_bytes, memory_percent, time_ratio, time_percent,
-- throughput_ratio (each nil where it is not known; of the baseline itself 0 or 1), why_none
function M.costs(results, axis, value)
  local is_point = type(axis) == "table"
  local plain = lazy_points.plain(results)
  local list = is_point and native.analysis.overhead_against(plain, lazy_points.plain_point(axis))
    or native.analysis.overhead(plain, axis, value)
  local costs = {}
  for i, point in ipairs(results.points) do
    costs[point] = list[i]
    costs[point].partner = results.points[list[i].partner]
  end
  return costs
end

--- Interval of a point's time ratio as text, with "within noise" where it contains 1; nil for the baseline itself, and where
-- nothing is known of the noise.
-- @tparam table point
-- @tparam table cost of the point, of M.costs
-- @tparam[opt] function shown text of a ratio, where the column shows something else
function M.noise_text(point, cost, shown)
  if cost.is_baseline or not cost.partner or not cost.time_ratio then return nil end
  return statistics.ratio_text(point, cost.partner, shown)
end

local function percent_more(ratio) return ("%+.1f"):format(100 * (ratio - 1)) end

--- Marks of rows that are a baseline, in the order of the points.
-- @treturn {boolean,...}
function M.baseline_rows(results, costs)
  return lists.map(results.points, function(point) return costs[point].is_baseline end)
end

--- GiB, or MiB where no point reaches one GiB; and what a MiB is of it.
-- @treturn string, number
function M.memory_unit(results)
  for _, point in ipairs(results.points) do
    if (point.metrics.peak_memory_mb or 0) >= 1024 then return "GiB", 1 / 1024 end
  end
  return "MiB", 1
end

--- Time and memory of every point, and what they are above the baseline's. The baseline's own rows show 0.
-- @tparam Runs results
-- @tparam[opt] table options baseline, axis (the sweep's own baseline, else "none" on the axis "mode")
-- @treturn Table columns: the axes, status, peak GiB, memory +GiB (MiB where all are below one GiB), avg ms, median ms, time +%,
-- its 95 % interval; `is_baseline` marks the baseline's own rows
-- @usage print(ms.analyze.overhead(runs, { baseline = "no_dp" }))
function M.analyze(results, options)
  options = guard.check("ms.analyze.overhead", options, { "baseline", "axis" }, 2)
  local axis, baseline = M.baseline_of(results, options)
  local costs, found = M.costs(results, axis, baseline), false
  local unit, factor = M.memory_unit(results)
  local titles = { "status", "peak " .. unit, "memory +" .. unit, "avg ms", "median ms", "time +%", "95 % of time +%" }
  local columns, rows = text_table.of_points(results, results.points, titles, function(point)
    local metrics, cost = point.metrics, costs[point]
    if point.status ~= "ok" then return { point.status } end
    found = found or cost.partner ~= nil
    return { point.status, metrics.peak_memory_mb and metrics.peak_memory_mb * factor,
      cost.memory_bytes and cost.memory_bytes / 2 ^ 20 * factor, metrics.avg_time_ms, metrics.median_time_ms, cost.time_percent,
      M.noise_text(point, cost, percent_more) }
  end)
  local note = found and "The rows with %s = %s are the baseline." or "No point has %s = %s: nothing to compare with."
  return text_table.new { title = "Overhead against " .. tostring(baseline), columns = columns, rows = rows,
    notes = { note:format(axis, tostring(baseline)) }, axis = axis, baseline = baseline, is_baseline = M.baseline_rows(results, costs),
    points = results.points }
end

return M
