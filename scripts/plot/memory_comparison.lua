--- Figure: peak memory of every mode, grouped by the other axes.
local plot_spec = require "moonshard.plot_spec"

return function(results)
  local grouped = plot_spec.grouped(results, function(point) return point.metrics.peak_memory_mb end)
  if not grouped then return nil end
  local title = "Peak memory: " .. plot_spec.subject(results)
  return plot_spec.spec(title, { plot_spec.panel("bars", "", "peak memory", "MiB", grouped) })
end
