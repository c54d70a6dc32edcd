--- Figure: peak memory against the batch size (document 002).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local axis = options and options.axis or plot_points.growing_axis(results, "batch_size")
  if not axis then return nil, "needs points of several batch sizes" end
  local panels = plot_spec.lines_over(results, { axis = axis, measure = "bytes", label = "peak memory",
    value = plot_points.peak_bytes })
  if not panels then return nil, "needs points with status ok and a peak memory" end
  return plot_spec.spec(plot_spec.title("Peak memory of a rank", results), panels,
    { columns = #panels > 3 and 3 or nil, height = #panels <= 3 and 440 or nil })
end
