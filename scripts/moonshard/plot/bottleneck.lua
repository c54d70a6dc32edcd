--- Figure: where the step time goes as the sequence grows: phases stacked per length, one panel per mode (document 001).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local axis = options and options.axis or plot_points.growing_axis(results, "seq_length", "image_size", "batch_size")
  if not axis then return nil, "needs points of several sequence lengths" end
  local phases = plot_points.phases(results.points)
  local panels = {}
  for _, group in ipairs(plot_spec.groups(results, plot_points.other_axes(results, axis))) do
    table.sort(group.points, function(a, b) return (tonumber(a.options[axis]) or 0) < (tonumber(b.options[axis]) or 0) end)
    local panel = plot_spec.stacked(group.points, { parts = phases, value = plot_points.phase_ms, axes = { axis }, measure = "ms",
      label = "step time", title = group.name, category = function(point) return plot_points.name(point, { axis }) end })
    if panel and #panels < 12 then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with status ok and times of phases (profile = phases)" end
  return plot_spec.spec(plot_spec.title("Where the time goes", results), panels,
    { columns = #panels > 3 and 2 or nil, width = #panels == 1 and 900 or nil, note = "Medians of the phases over the measured steps." })
end
