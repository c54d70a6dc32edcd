--- Figure: peak memory of every mode, grouped by the other axes (document 000).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local panel = plot_spec.grouped(results, { series = options and options.series, measure = "bytes", label = "peak memory",
    value = plot_points.peak_bytes })
  if not panel then return nil, "needs points with status ok and a peak memory" end
  return plot_spec.spec(plot_spec.title("Peak memory", results), { panel })
end
