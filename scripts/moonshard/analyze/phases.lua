--- Median time of each phase of a step, and what it is of the whole.
local guard = require "moonshard.options_guard"
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

--- One row per point with status ok: the axes, each phase in ms, the step.
-- @tparam Runs results
-- @treturn Table
function M.analyze(results, options)
  guard.check("ms.analyze.phases", options, {}, 2)
  local points = results:select("ok")
  local columns, rows, phases = {}, {}, plot_points.phases(points)
  for i, axis in ipairs(results.axes) do columns[i] = axis end
  for _, name in ipairs(phases) do columns[#columns + 1] = name end
  columns[#columns + 1] = "step"
  for r, point in ipairs(points) do
    local row, n = {}, #results.axes
    for i, axis in ipairs(results.axes) do row[i] = (point.asked or {})[axis] or point.options[axis] end
    for i, name in ipairs(phases) do row[n + i] = plot_points.phase_ms(point, name) end
    row[n + #phases + 1] = point.metrics.median_time_ms
    rows[r] = row
  end
  return text_table.new { title = "Median ms of each phase", columns = columns, rows = rows }
end

return M
