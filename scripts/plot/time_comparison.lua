--- Figure: median step time of every mode, grouped by the other axes.
local plot_spec = require "moonshard.plot_spec"

return function(results)
  local grouped = plot_spec.grouped(results, function(point) return point.metrics.median_time_ms end)
  if not grouped then return nil end
  local title = "Step time: " .. plot_spec.subject(results)
  return plot_spec.spec(title, { plot_spec.panel("bars", "", "median step time", "ms", grouped) })
end
