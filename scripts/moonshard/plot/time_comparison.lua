--- Figure: median step time of every mode with its spread, grouped by the other axes (document 000).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local panel = plot_spec.grouped(results, { series = options and options.series, measure = "ms", label = "median step time",
    value = plot_points.step_ms, spread = plot_points.time_quartiles })
  if not panel then return nil, "needs points with status ok and a step time" end
  return plot_spec.spec(plot_spec.title("Step time", results), { panel }, { note = plot_spec.time_note(results.points) })
end
