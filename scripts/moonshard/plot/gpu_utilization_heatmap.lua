--- Figure: utilisation of the device over batch size and accumulation, one map per way to shard (document 002).
-- Where no GPU was measured, CPU utilisation is shown instead, labelled as such.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local sources = {
  { key = "gpu_utilization_percent", title = "GPU utilisation", label = "GPU utilisation", unit = "%", min = 0, max = 100 },
  { key = "cpu_percent", title = "CPU utilisation (no GPU was measured)", label = "CPU, 100 = one core", unit = "%" },
}

local function source_of(results)
  for _, source in ipairs(sources) do
    for _, point in ipairs(results.points) do
      if point.status == "ok" and plot_points.metric(point, source.key) then return source end
    end
  end
end

--- The values of an axis as texts, numbers by their size.
local function values_of(results, axis)
  local values = lists.unique(lists.map(results.points, function(point) return tostring(plot_points.axis_value(point, axis)) end))
  table.sort(values, function(a, b)
    local x, y = tonumber(a), tonumber(b)
    if x and y then return x < y end
    return a < b
  end)
  return values
end

local function map_of(group, source, columns, column_axis, rows, row_axis)
  local series = {}
  for _, row in ipairs(rows) do
    local entry = { name = row, x = {}, y = {}, status = {} }
    for c, column in ipairs(columns) do
      for _, point in ipairs(group.points) do
        local here = tostring(plot_points.axis_value(point, column_axis)) == column
          and (not row_axis or tostring(plot_points.axis_value(point, row_axis)) == row)
        if here then
          local figure = point.status == "ok" and plot_points.metric(point, source.key) or nil
          figure = figure and math.floor(figure * 10 + 0.5) / 10
          local n = #entry.x + 1
          entry.x[n], entry.y[n] = c - 1, figure or native.null
          entry.status[n] = point.status == "ok" and not figure and "no value" or tostring(point.status)
          break
        end
      end
    end
    -- A zip has not every combination: a row that this group never met is none of its rows.
    if #entry.x > 0 then series[#series + 1] = entry end
  end
  local x, y = plot_points.axis_label { column_axis }, row_axis and plot_points.axis_label { row_axis } or {}
  x.categories = columns
  return { kind = "heat_map", title = group.name, x = x, y = y, series = series,
    value = { label = source.label, unit = source.unit, min = source.min, max = source.max } }
end

return { gpu_utilization_heatmap = function(results)
  local source = source_of(results)
  if not source then return nil, "needs points with status ok and a utilisation" end
  local column_axis = plot_points.growing_axis(results, "batch_size", "seq_length")
  if not column_axis then return nil, "needs points of several batch sizes" end
  local numeric = {}
  for _, axis in ipairs(plot_points.other_axes(results, column_axis)) do
    if axis == "grad_accum" then table.insert(numeric, 1, axis)
    elseif type(plot_points.axis_value(results.points[1], axis)) == "number" then numeric[#numeric + 1] = axis end
  end
  local row_axis = numeric[1]
  local columns, rows = values_of(results, column_axis), row_axis and values_of(results, row_axis) or { "" }
  local panels = {}
  local rest = plot_points.other_axes(results, column_axis, row_axis)
  for _, group in ipairs(plot_spec.groups(results, rest)) do
    if #rest == 0 then group.name = "" end
    if #panels < 12 then panels[#panels + 1] = map_of(group, source, columns, column_axis, rows, row_axis) end
  end
  -- One scale for all maps, so that equal colours mean equal figures.
  if not source.max then
    local largest = 0
    for _, point in ipairs(results.points) do largest = math.max(largest, plot_points.metric(point, source.key) or 0) end
    for _, panel in ipairs(panels) do panel.value.min, panel.value.max = 0, math.max(math.ceil(largest / 20) * 20, 20) end
  end
  return plot_spec.spec(source.title, results, panels, { columns = #panels > 3 and 2 or nil,
    width = #panels == 1 and 760 or nil, height = #panels <= 3 and math.min(700, 230 + 60 * #rows) or nil })
end }
