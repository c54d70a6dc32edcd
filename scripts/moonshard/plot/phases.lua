--- Figure: the median time of each phase of a step, stacked, one bar per point.
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results)
  local phases, axes = plot_points.phases(results.points), plot_points.varying(results)
  local count = #results.points
  local lying = count > 6
  local panel = plot_spec.stacked(results.points, { parts = phases, value = plot_points.phase_ms, axes = axes, measure = "ms",
    label = "step time", horizontal = lying, category = function(point) return plot_points.name(point, axes) end })
  if not panel then return nil, "needs points with status ok and times of phases (profile = phases)" end
  return plot_spec.spec(plot_spec.title("Phases of a step", results), { panel },
    { width = 1000, height = lying and math.min(1600, 180 + 30 * count) or 560, note = "Medians over the measured steps." })
end
