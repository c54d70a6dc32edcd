--- Tables of a row per point: the times of its phases, and its time against its memory (runtime/analysis/claims.h).
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

--- One row per point with status ok: the axes, the median of each phase in ms, the step.
-- @tparam Runs results
-- @treturn Table
function M.phases(results, options)
  guard.check("ms.analyze.phases", options, {}, 2)
  local points = results:select("ok")
  local phases = plot_points.phases(points)
  local columns, rows = text_table.of_points(results, points, lists.extend({}, phases, { "step" }), function(point)
    local row = lists.map(phases, function(name) return plot_points.phase_ms(point, name) end)
    row[#phases + 1] = point.metrics.median_time_ms
    return row
  end, function(point, axis) return (point.asked or {})[axis] end)
  return text_table.new { title = "Median ms of each phase", columns = columns, rows = rows, points = points }
end

--- One row per point with status ok: the axes, time, memory, and whether the point is efficient: no other one is at most
-- as slow and as large, and better in one of the two.
-- @tparam Runs results
-- @treturn Table
-- @usage print(ms.analyze.tradeoff(runs))
function M.tradeoff(results, options)
  guard.check("ms.analyze.tradeoff", options, {}, 2)
  local points = results:select("ok")
  local costs = lists.map(points, function(point) return { time = plot_points.step_ms(point), memory = plot_points.peak_bytes(point) } end)
  local efficient = native.analysis.efficient(costs)
  local columns, rows = text_table.of_points(results, points, { "median ms", "peak MiB", "efficient" }, function(_, r)
    return { costs[r].time, costs[r].memory and costs[r].memory / 2 ^ 20, efficient[r] and "yes" or "no" }
  end, plot_points.axis_value)
  return text_table.new { title = "Time against memory", columns = columns, rows = rows }
end

return M
