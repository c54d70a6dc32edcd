--- Figure: tokens per second against the batch size (document 002).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local axis = options and options.axis or plot_points.growing_axis(results, "batch_size")
  if not axis then return nil, "needs points of several batch sizes" end
  local what, key = "tokens", "tokens_per_s"
  local function value(point) return plot_points.metric(point, key) end
  local panels = plot_spec.lines_over(results, { axis = axis, value = value, measure = "tokens/s", label = "throughput" })
  if not panels then
    what, key = "samples", "samples_per_s"
    panels = plot_spec.lines_over(results, { axis = axis, value = value, measure = "samples/s", label = "throughput" })
  end
  if not panels then return nil, "needs points with status ok and a throughput" end
  return plot_spec.spec(plot_spec.title(("Throughput in %s per second"):format(what), results), panels,
    { columns = #panels > 3 and 3 or nil, height = #panels <= 3 and 440 or nil })
end
