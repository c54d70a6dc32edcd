--- Figure: what privacy costs, against the plain run with the same other options: memory and time.
local plot_spec = require "moonshard.plot_spec"

return function(results)
  local ok, overhead = pcall(results.overhead, results)
  if not ok then return nil end
  local n = #results.axes
  local row_of = {}
  for i, point in ipairs(results.points) do row_of[point.id] = overhead.rows[i] end
  local function is_private(point) return point.options.mode ~= overhead.baseline end
  local memory = plot_spec.grouped(results, function(point) return row_of[point.id][n + 4] end, is_private)
  local time = plot_spec.grouped(results, function(point)
    local ratio = row_of[point.id][n + 2]
    return ratio and 100 * (ratio - 1)
  end, is_private)
  if not memory or not time then return nil end
  return plot_spec.spec("Overhead against " .. overhead.baseline .. ": " .. plot_spec.subject(results), {
    plot_spec.panel("bars", "Memory", "additional peak memory", "MiB", memory),
    plot_spec.panel("bars", "Time", "additional step time", "%", time),
  }, 1200, 520)
end
