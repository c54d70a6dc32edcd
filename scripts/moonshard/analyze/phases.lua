--- Median time of each phase of a step, and what it is of the whole.
local guard = require "moonshard.options_guard"
local text_table = require "moonshard.text_table"

local M = {}

--- Phases in the order of a step; what a record adds to them comes behind.
M.order = { "data", "graph", "forward", "backward", "norm_reduce", "clip_factors", "clipped_sum", "second_backward", "reduce", "noise",
  "optimizer", "update" }

--- Phases that any point has.
local function phases_of(points)
  local order, extra, has, known = {}, {}, {}, {}
  for _, name in ipairs(M.order) do known[name] = true end
  for _, point in ipairs(points) do
    for name in pairs(point.result.time and point.result.time.phases_ms or {}) do
      if not has[name] and not known[name] then extra[#extra + 1] = name end
      has[name] = true
    end
  end
  table.sort(extra)
  for _, list in ipairs { M.order, extra } do
    for _, name in ipairs(list) do
      if has[name] then order[#order + 1] = name end
    end
  end
  return order
end

--- One row per point with status ok: the axes, each phase in ms, the step.
-- @tparam Runs results
-- @treturn Table
function M.analyze(results, options)
  guard.check("ms.analyze.phases", options, {}, 2)
  local points = results:select("ok")
  local columns, rows, phases = {}, {}, phases_of(points)
  for i, axis in ipairs(results.axes) do columns[i] = axis end
  for _, name in ipairs(phases) do columns[#columns + 1] = name end
  columns[#columns + 1] = "step"
  for r, point in ipairs(points) do
    local row, n = {}, #results.axes
    for i, axis in ipairs(results.axes) do row[i] = (point.asked or {})[axis] or point.options[axis] end
    local measured = point.result.time and point.result.time.phases_ms or {}
    for i, name in ipairs(phases) do row[n + i] = measured[name] and measured[name].median end
    row[n + #phases + 1] = point.metrics.median_time_ms
    rows[r] = row
  end
  return text_table.new { title = "Median ms of each phase", columns = columns, rows = rows }
end

return M
