--- Figure: variants of an optimisation side by side: step time, peak memory and exposed communication (document 001).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

--- Bars per variant (all varying axes but the growing one), grouped by that one.
local function panel_of(results, axis, title, label, measure, value, spread)
  local variants = plot_points.other_axes(results, axis)
  local function series_name(point) return plot_points.name(point, variants, true) end
  local categories = plot_spec.ordered()
  local series, largest = plot_spec.collect(results.points, {
    series = series_name, colors = plot_spec.colors(results, series_name), categories = categories, value = value, spread = spread,
    x = function(point) return axis and plot_points.name(point, { axis }) .. "" or plot_points.name(point, {}) end,
    axes = plot_points.varying(results),
  })
  if not series or largest == 0 then return nil end
  local unit, factor = plot_spec[measure == "bytes" and "memory_unit" or "time_unit"](largest)
  plot_spec.scale(series, factor)
  local x = plot_points.axis_label { axis }
  x.categories = categories.names
  return { kind = "bars", title = title, x = x, y = { label = label, unit = unit }, series = series }
end

return function(results, options)
  local axis = options and options.axis or plot_points.growing_axis(results, "seq_length", "image_size")
  if #plot_points.other_axes(results, axis) == 0 then return nil, "needs points that differ in more than their size" end
  local function exposed(point) return plot_points.metric(point, "comm_exposed_ms") end
  local panels = {}
  for _, panel in ipairs {
    panel_of(results, axis, "Step time", "median step time", "ms", plot_points.step_ms, plot_points.time_quartiles) or false,
    panel_of(results, axis, "Peak memory", "peak memory", "bytes", plot_points.peak_bytes) or false,
    panel_of(results, axis, "Exposed communication", "exposed communication", "ms", exposed) or false,
  } do
    if panel then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with status ok and a step time" end
  return plot_spec.spec(plot_spec.title("Before and after", results), panels, { note = plot_spec.time_note(results.points) })
end
