--- Helpers for the figures in scripts/plot: records in, series out.
local native = require "moonshard.native"

local M = {}

--- Axes besides the series axis, e.g. { "seq_length" }.
local function other_axes(results, series_axis)
  local axes = {}
  for _, axis in ipairs(results.axes) do
    if axis ~= series_axis then axes[#axes + 1] = axis end
  end
  return axes
end

local function category_of(point, axes, model)
  if #axes == 0 then return model end
  local parts = {}
  for i, axis in ipairs(axes) do parts[i] = tostring(point.options[axis]) end
  return table.concat(parts, ", ")
end

--- One bar per point: categories are the other axes' values, series the values of the series axis.
-- @tparam Runs results
-- @tparam function value takes a point with status ok, returns a number or nil
-- @tparam[opt] function keep which points take part
-- @treturn table panel part: x (axis) and series; nil when no point has a figure
function M.grouped(results, value, keep)
  local series_axis = "mode"
  local axes = other_axes(results, series_axis)
  local categories, category_index, series, by_name, any = {}, {}, {}, {}, false
  for _, point in ipairs(results.points) do
    if not keep or keep(point) then
      local category = category_of(point, axes, point.options.model)
      if not category_index[category] then
        categories[#categories + 1] = category
        category_index[category] = #categories - 1
      end
      local name = tostring(point.options[series_axis])
      local entry = by_name[name]
      if not entry then
        entry = { name = name, x = {}, y = {}, status = {}, labels = {} }
        by_name[name] = entry
        series[#series + 1] = entry
      end
      local figure = point.status == "ok" and value(point) or nil
      any = any or figure ~= nil
      local n = #entry.x + 1
      entry.x[n] = category_index[category]
      entry.y[n] = figure == nil and native.null or figure
      entry.status[n] = point.status
      entry.labels[n] = ("%s %s"):format(name, category)
    end
  end
  if not any then return nil end
  local label = #axes > 0 and table.concat(axes, ", ") or "model"
  return { x = { label = label, categories = categories }, series = series }
end

--- A panel from grouped() and its words.
function M.panel(kind, title, y_label, unit, grouped)
  return { kind = kind, title = title, x = grouped.x, y = { label = y_label, unit = unit }, series = grouped.series }
end

--- A whole spec.
function M.spec(title, panels, width, height)
  return { schema_version = 1, title = title, width = width or 900, height = height or 520, panels = panels }
end

--- "llama3-tiny, batch 2": what all points share, for titles.
function M.subject(results)
  local options = results.points[1].options
  return ("%s, batch %d"):format(options.model, options.batch_size)
end

return M
