--- A plot spec (docs/plots.md) as the drawing functions take it: every text a string, every number finite, every list bounded,
-- whoever wrote the file. Points are tables of x, y, low, high, status, label, text instead of parallel lists.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"

local M = {}

local kinds = lists.set { "bars", "stacked_bars", "lines", "stacked_area", "scatter", "heat_map" }
local most_panels, most_series, most_points, most_categories = 16, 256, 100000, 1000

--- A number that arithmetic on axes cannot make infinite, or nil.
local function number(value)
  value = plot_points.number(value)
  return value and math.abs(value) < 1e100 and value or nil
end

local function text(value, longest)
  if type(value) ~= "string" and type(value) ~= "number" then return "" end
  return tostring(value):sub(1, longest or 400)
end

local function bounded(value, most)
  local list = plot_points.list(value)
  local copy = {}
  for i = 1, math.min(#list, most) do copy[i] = list[i] end
  return copy
end

local function axis(given)
  given = plot_points.list(given)
  local names = type(given.categories) == "table" and bounded(given.categories, most_categories) or nil
  for i, name in ipairs(names or {}) do names[i] = text(name) end
  return { label = text(given.label), unit = text(given.unit), scale = given.scale == "log" and "log" or "linear",
    categories = names, min = number(given.min), max = number(given.max) }
end

local function series(given)
  given = plot_points.list(given)
  local function column(key) return plot_points.list(given[key]) end
  local x, y, low, high = column "x", column "y", column "low", column "high"
  local status, labels, texts, points = column "status", column "labels", column "texts", {}
  for i = 1, math.min(math.max(#x, #y), most_points) do
    local figure = number(y[i])
    points[i] = { x = number(x[i]), y = figure, low = figure and number(low[i]),
      high = figure and number(high[i]), status = status[i] and text(status[i], 40) or figure and "ok" or "no value",
      label = text(labels[i]), text = text(texts[i]) }
  end
  local color = number(given.color)
  return { name = text(given.name), points = points, stack = text(given.stack), color = color and math.floor(color) % 16 }
end

local function numbers(value)
  if type(value) == "number" then value = { value } end
  local found = {}
  for _, each in ipairs(bounded(value, 1000)) do found[#found + 1] = number(each) end
  return found
end

local function panel(given)
  given = plot_points.list(given)
  if not kinds[given.kind] then error("expected a known kind of panel, got " .. tostring(given.kind), 0) end
  local result = { kind = given.kind, title = text(given.title), x = axis(given.x), y = axis(given.y), value = axis(given.value),
    horizontal = given.horizontal == true, series = lists.map(bounded(given.series, most_series), series) }
  result.bands = lists.map(bounded(given.bands, 200), function(each)
    each = plot_points.list(each)
    return { from = number(each.from), to = number(each.to), label = text(each.label) }
  end)
  result.references = lists.map(bounded(given.references, 200), function(each)
    each = plot_points.list(each)
    return { text = text(each.text), x = numbers(each.x), y = numbers(each.y), series = text(each.series) }
  end)
  return result
end

--- Checks a spec.
-- @tparam table given as plots.spec makes it or a file holds it
-- @treturn table title, note, panels, width and height in pixels, columns
function M.read(given)
  given = plot_points.list(given)
  local panels = lists.map(bounded(given.panels, most_panels), panel)
  if #panels == 0 then error("expected panels, got none", 0) end
  local function size(value, default) return math.floor(math.max(64, math.min(16384, number(value) or default))) end
  local columns = math.floor(number(given.columns) or 0)
  return { title = text(given.title), note = text(given.note, 1000), panels = panels, width = size(given.width, 900),
    height = size(given.height, 520), columns = columns >= 1 and math.min(columns, #panels) or #panels }
end

return M
