--- Figure: a step split into computation, communication that nothing hides, and waiting for data (document 002).
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local parts = { "compute", "exposed communication", "data" }

--- Milliseconds of each part; nil where the phases were not measured.
local function split(point)
  local step = plot_points.step_ms(point)
  if not step then return nil end
  local sum, data = 0, 0
  for _, phase in ipairs(plot_points.phases { point }) do
    local ms = plot_points.phase_ms(point, phase) or 0
    sum = sum + ms
    if phase == "data" then data = ms end
  end
  if sum == 0 then return nil end
  local exposed = math.min(plot_points.metric(point, "comm_exposed_ms") or 0, math.max(0, step - data))
  return { compute = math.max(0, step - data - exposed), ["exposed communication"] = exposed, data = data }
end

return function(results, options)
  local series_axis = plot_points.series_axis(results, options)
  local axes, panels = plot_points.other_axes(results, series_axis), {}
  local groups = plot_spec.groups(results, { series_axis })
  -- Where only the series differ, they stand beside each other.
  if #axes == 0 then groups, axes = { { name = "", points = results.points } }, { series_axis } end
  for _, group in ipairs(groups) do
    local panel = plot_spec.stacked(group.points, { parts = parts, axes = axes, measure = "ms", label = "median step time",
      title = group.name, category = function(point) return plot_points.name(point, axes) end,
      value = function(point, part) return (split(point) or {})[part] end })
    if panel and #panels < 12 then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with status ok and times of phases (profile = phases)" end
  local wide = #panels[1].x.categories > 6
  return plot_spec.spec(plot_spec.title("What a step waits for", results), panels,
    { columns = (wide or #panels > 3) and (wide and #panels <= 3 and 1 or 2) or nil, width = wide and 1000 or nil,
      note = "Exposed communication: of the detailed step; the rest: medians over the measured steps." })
end
