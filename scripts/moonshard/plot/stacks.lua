--- Figures of stacked bars: what a step or its memory is made of.
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local M = {}

local most_panels = 12

--- Figure: the median time of each phase of a step, stacked, one bar per point.
function M.phases(results)
  local count = #results.points
  local lying = count > 6
  local panel = plot_spec.stacked(results.points, { parts = plot_points.phases(results.points), value = plot_points.phase_ms,
    axes = plot_points.other_axes(results), measure = "ms", label = "step time", horizontal = lying })
  if not panel then return nil, "needs points with status ok and times of phases (profile = phases)" end
  return plot_spec.spec("Phases of a step", results, { panel },
    { width = 1000, height = lying and math.min(1600, 180 + 30 * count) or 560, note = "Medians over the measured steps." })
end

--- Figure: where the step time goes as the sequence grows: phases stacked per length, one panel per mode (document 001).
function M.bottleneck(results, options)
  local axis = options.axis or plot_points.growing_axis(results, "seq_length", "image_size", "batch_size")
  if not axis then return nil, "needs points of several sequence lengths" end
  local phases, panels = plot_points.phases(results.points), {}
  for _, group in ipairs(plot_spec.groups(results, plot_points.other_axes(results, axis), axis)) do
    local panel = plot_spec.stacked(group.points, { parts = phases, value = plot_points.phase_ms, axes = { axis }, measure = "ms",
      label = "step time", title = group.name })
    if panel and #panels < most_panels then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with status ok and times of phases (profile = phases)" end
  return plot_spec.spec("Where the time goes", results, panels,
    { columns = #panels > 3 and 2 or nil, width = #panels == 1 and 900 or nil, note = "Medians of the phases over the measured steps." })
end

--- Milliseconds of each part of a step; none where the phases were not measured.
local function split(point)
  local step = plot_points.step_ms(point)
  local sum, data = 0, 0
  for _, phase in ipairs(plot_points.phases { point }) do
    local ms = plot_points.phase_ms(point, phase) or 0
    sum = sum + ms
    if phase == "data" then data = ms end
  end
  if not step or sum == 0 then return {} end
  local exposed = math.min(plot_points.metric(point, "comm_exposed_ms") or 0, math.max(0, step - data))
  return { compute = math.max(0, step - data - exposed), ["exposed communication"] = exposed, data = data }
end

--- Figure: a step split into computation, communication that nothing hides, and waiting for data (document 002).
function M.overhead_breakdown(results, options)
  local series_axis = plot_points.series_axis(results, options)
  local axes, panels = plot_points.other_axes(results, series_axis), {}
  local groups = plot_spec.groups(results, { series_axis })
  -- Where only the series differ, they stand beside each other.
  if #axes == 0 then groups, axes = { { name = "", points = results.points } }, { series_axis } end
  for _, group in ipairs(groups) do
    local panel = plot_spec.stacked(group.points, { parts = { "compute", "exposed communication", "data" }, axes = axes, measure = "ms",
      label = "median step time", title = group.name, value = function(point, part) return split(point)[part] end })
    if panel and #panels < most_panels then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return nil, "needs points with status ok and times of phases (profile = phases)" end
  local wide = #panels[1].x.categories > 6
  return plot_spec.spec("What a step waits for", results, panels,
    { columns = (wide or #panels > 3) and (wide and #panels <= 3 and 1 or 2) or nil, width = wide and 1000 or nil,
      note = "Exposed communication: of the detailed step; the rest: medians over the measured steps." })
end

local function breakdown(point) return plot_points.part(point, "memory", "breakdown") end

local function bytes_of(point, owner)
  for _, row in ipairs(breakdown(point)) do
    if type(row) == "table" and row.owner == owner then return plot_points.number(row.bytes) end
  end
  if owner == "rest" and #breakdown(point) > 0 then return plot_points.number(plot_points.part(point, "memory").rest_bytes) end
end

--- Figure: who holds the memory at its peak, stacked by owner, one bar per engine (document 004).
function M.memory_breakdown_comparison(results)
  local owners = { "rest" }
  for _, point in ipairs(results.points) do
    for _, row in ipairs(breakdown(point)) do owners[#owners + 1] = tostring(plot_points.list(row).owner) end
  end
  local panel = plot_spec.stacked(results.points, { parts = plot_points.owners_in_order(owners), value = bytes_of,
    axes = plot_points.other_axes(results), measure = "bytes", label = "memory at the peak" })
  if not panel then return nil, "needs points with status ok and memory by owner (profile = phases)" end
  return plot_spec.spec("Memory by owner at the peak of a step", results, { panel },
    { width = math.max(900, math.min(1600, 200 + 110 * #results.points)), height = 600 })
end

return M
