--- Figure: peak memory against step time, one mark per point, its size beside it (document 000).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

return function(results, options)
  local axis = plot_points.series_axis(results, options)
  local axes = plot_points.other_axes(results, axis)
  local largest_ms
  for _, point in ipairs(results.points) do
    local ms = point.status == "ok" and plot_points.step_ms(point)
    if ms then largest_ms = math.max(largest_ms or 0, ms) end
  end
  if not largest_ms then return nil, "needs points with status ok and a step time" end
  local time_unit, per_ms = plot_spec.time_unit(largest_ms)
  local function series_name(point) return plot_points.name(point, { axis }) end
  local series, largest = plot_spec.collect(results.points, {
    series = series_name, colors = plot_spec.colors(results, series_name), axes = plot_points.varying(results),
    x = function(point)
      local ms = point.status == "ok" and plot_points.step_ms(point)
      return ms and plot_points.peak_bytes(point) and ms * per_ms or nil
    end,
    value = function(point) return plot_points.step_ms(point) and plot_points.peak_bytes(point) end,
    text = function(point) return #axes > 0 and plot_points.name(point, axes) or "" end,
  })
  if not series then return nil, "needs points with status ok and a peak memory" end
  local unit, factor = plot_spec.memory_unit(largest)
  plot_spec.scale(series, factor)
  local beside = plot_points.axis_label(axes)
  if beside.label == "configuration" then beside.label = "what varies of the configuration" end
  local note = #axes > 0 and ("Beside the marks: %s."):format(beside.unit and beside.label .. " in " .. beside.unit or beside.label) or nil
  return plot_spec.spec(plot_spec.title("Memory against time", results), { {
    kind = "scatter", series = series, x = { label = "median step time", unit = time_unit }, y = { label = "peak memory", unit = unit },
  } }, { note = note })
end
