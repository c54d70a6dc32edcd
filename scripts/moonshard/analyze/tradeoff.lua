--- Time against memory: which points no other one beats in both (runtime/analysis/tradeoff.h).
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

--- One row per point with status ok: the axes, time, memory, and whether the point is efficient: no other one is at most
-- as slow and as large, and better in one of the two.
-- @tparam Runs results
-- @treturn Table
-- @usage print(ms.analyze.tradeoff(runs))
function M.analyze(results, options)
  guard.check("ms.analyze.tradeoff", options, {}, 2)
  local columns, rows, costs, points = {}, {}, {}, results:select("ok")
  for i, axis in ipairs(results.axes) do columns[i] = axis end
  for _, title in ipairs { "median ms", "peak MiB", "efficient" } do columns[#columns + 1] = title end
  for i, point in ipairs(points) do costs[i] = { time = plot_points.step_ms(point), memory = plot_points.peak_bytes(point) } end
  local efficient = native.analysis.efficient(costs)
  for r, point in ipairs(points) do
    local row, n, cost = {}, #results.axes, costs[r]
    for i, axis in ipairs(results.axes) do row[i] = plot_points.axis_value(point, axis) end
    row[n + 1], row[n + 2], row[n + 3] = cost.time, cost.memory and cost.memory / 2 ^ 20, efficient[r] and "yes" or "no"
    rows[r] = row
  end
  return text_table.new { title = "Time against memory", columns = columns, rows = rows }
end

return M
