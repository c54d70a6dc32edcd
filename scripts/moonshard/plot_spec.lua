--- Building blocks of the figures in scripts/moonshard/plot: records in, plot specs out (docs/plots.md).
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local points_of = require "moonshard.plot_points"

local M = {}

local MiB, GiB = 2 ^ 20, 2 ^ 30

--- Unit and factor for bytes of about this size.
function M.memory_unit(bytes)
  if bytes >= 2 * GiB then return "GiB", 1 / GiB end
  if bytes >= MiB then return "MiB", 1 / MiB end
  return "KiB", 1 / 1024
end

--- Unit and factor for milliseconds of about this size.
function M.time_unit(ms)
  if ms >= 20000 then return "s", 1e-3 end
  if ms < 0.2 then return "us", 1e3 end
  return "ms", 1
end

local units = { bytes = M.memory_unit, ms = M.time_unit }

--- Unit and factor for figures of a measure ("bytes", "ms", or a unit of its own) up to this size.
local function unit_for(measure, largest)
  if units[measure] then return units[measure](largest) end
  return measure, 1
end

--- A list that keeps the order in which names first came, with their indices from 0.
function M.ordered()
  local names, index = {}, {}
  local function add(_, name)
    if not index[name] then
      names[#names + 1] = name
      index[name] = #names - 1
    end
    return index[name]
  end
  return { names = names, index = index, add = add }
end

--- Collects points into series. A point that is not ok, or lacks the figure, stays in with its status.
-- @tparam table ask series, x (functions of a point: name, and category or number), value (function; nil: no figure),
-- spread (optional: low and high), text (optional), categories (list from M.ordered, or nil for a numeric axis),
-- colors (name -> index of the palette), axes (for the labels)
-- @treturn {table,...} series; nil when no point has a figure
-- @treturn number largest absolute figure
function M.collect(points, ask)
  local series, by_name, largest = {}, {}, nil
  for _, point in ipairs(points) do
    local name = ask.series(point)
    local entry = by_name[name]
    if not entry then
      entry = { name = name, x = {}, y = {}, status = {}, labels = {}, color = ask.colors[name] }
      by_name[name], series[#series + 1] = entry, entry
    end
    local figure = point.status == "ok" and points_of.number(ask.value(point)) or nil
    local place, n = ask.x(point), #entry.y + 1
    if ask.categories then place = ask.categories:add(place) end
    entry.x[n] = place or native.null
    entry.y[n] = figure == nil and native.null or figure
    entry.status[n] = point.status == "ok" and figure == nil and "no value" or tostring(point.status)
    entry.labels[n] = points_of.name(point, ask.axes, true)
    if ask.text then
      entry.texts = entry.texts or {}
      entry.texts[n] = ask.text(point)
    end
    if ask.spread then
      entry.low, entry.high = entry.low or {}, entry.high or {}
      local low, high
      if figure then low, high = ask.spread(point) end
      entry.low[n], entry.high[n] = low or native.null, high or native.null
      largest = high and math.max(largest or 0, math.abs(high)) or largest
    end
    if figure then largest = math.max(largest or 0, math.abs(figure)) end
  end
  return largest and series, largest
end

--- Multiplies the figures of series.
function M.scale(series, factor)
  for _, entry in ipairs(series) do
    for _, key in ipairs { "y", "low", "high" } do
      for i, value in ipairs(entry[key] or {}) do
        if type(value) == "number" then entry[key][i] = value * factor end
      end
    end
  end
end

--- A fixed palette index per value of the series axis, the same in every figure of the folder.
function M.colors(results, name_of)
  local order = M.ordered()
  for _, point in ipairs(results.points) do order:add(name_of(point)) end
  return order.index
end

--- One bar per point: categories are the other axes' values, series those of the series axis.
-- @tparam table ask value (function of a point), measure ("bytes", "ms", or a unit), label, title; optional: spread, keep, series,
-- category_axes (series are then the combinations of all others)
-- @treturn table panel; nil when no point has a figure
function M.grouped(results, ask)
  local axis = points_of.series_axis(results, ask)
  local axes, series_axes = points_of.other_axes(results, axis), { axis }
  if ask.category_axes then
    axes, series_axes = ask.category_axes, points_of.other_axes(results, unpack(ask.category_axes))
  end
  local categories = M.ordered()
  local function series_name(point) return points_of.name(point, series_axes, ask.category_axes ~= nil) end
  local series, largest = M.collect(ask.keep and lists.select(results.points, ask.keep) or results.points, {
    series = series_name, x = function(point) return points_of.name(point, axes) end, value = ask.value, spread = ask.spread,
    categories = categories, colors = M.colors(results, series_name), axes = points_of.other_axes(results),
  })
  if not series then return nil end
  local unit, factor = unit_for(ask.measure, largest)
  M.scale(series, factor)
  local x = points_of.axis_label(axes)
  x.categories = categories.names
  return { kind = "bars", title = ask.title, x = x, y = { label = ask.label, unit = unit }, series = series }
end

local function sorted_by(axis, points)
  local function size(point) return tonumber(points_of.axis_value(point, axis)) or 0 end
  table.sort(points, function(a, b) return size(a) < size(b) end)
  return points
end

--- Lines over a numeric axis, one panel per combination of the remaining axes.
-- @tparam table ask axis, value, measure, label
-- @treturn {table,...} panels; nil when no point has a figure
function M.lines_over(results, ask)
  local axis, series_axis = ask.axis, points_of.series_axis(results, ask)
  local rest = points_of.other_axes(results, axis, series_axis)
  local groups = M.groups(results, rest, axis)
  local joined = #groups > 6  -- too many panels: the rest goes into the names of lines
  if joined then groups = { { points = sorted_by(axis, lists.extend({}, results.points)) } } end
  local function series_name(point) return points_of.name(point, joined and points_of.other_axes(results, axis) or { series_axis }) end
  local panels, all_largest = {}, 0
  for _, group in ipairs(groups) do
    local series, largest = M.collect(group.points, {
      series = series_name, x = function(point) return points_of.number(points_of.axis_value(point, axis)) end, value = ask.value,
      colors = M.colors(results, series_name), axes = points_of.other_axes(results),
    })
    if series then
      all_largest = math.max(all_largest, largest)
      local x = points_of.axis_label { axis }
      x.scale = "log"
      panels[#panels + 1] = { kind = "lines", title = (joined or #rest == 0) and "" or group.name, x = x, series = series,
        y = { label = ask.label, scale = "linear", min = 0 } }
    end
  end
  if #panels == 0 then return nil end
  local unit, factor = unit_for(ask.measure, all_largest)
  for _, panel in ipairs(panels) do
    M.scale(panel.series, factor)
    panel.y.unit = unit
    -- Panels that are read against each other share one scale.
    if #panels > 1 then panel.y.max = all_largest > 0 and all_largest * factor * 1.08 or nil end
  end
  return panels
end

--- Stacked bars: for each point a stack of parts.
-- @tparam table ask parts (list of names), value (function of point and part), axes (their values are the categories), measure,
-- label, title; horizontal optional
-- @treturn table panel; nil when no point has a figure
function M.stacked(points, ask)
  local categories, series, largest = M.ordered(), {}, 0
  for _, part in ipairs(ask.parts) do
    local entry = { name = points_of.shown(part), x = {}, y = {}, status = {}, labels = {} }
    local any = false
    for i, point in ipairs(points) do
      local figure = point.status == "ok" and points_of.number(ask.value(point, part)) or nil
      any = any or (figure ~= nil and figure > 0)
      entry.x[i] = categories:add(points_of.name(point, ask.axes))
      entry.y[i] = figure and math.max(figure, 0) or native.null
      entry.status[i] = tostring(point.status)
      entry.labels[i] = points_of.name(point, ask.axes, true)
    end
    if any then series[#series + 1] = entry end
  end
  if #series == 0 then return nil end
  -- A part that one engine does not have is nothing, not a failure; a point without any part is one.
  for i, point in ipairs(points) do
    local total = 0
    for _, entry in ipairs(series) do total = total + (entry.y[i] ~= native.null and entry.y[i] or 0) end
    largest = math.max(largest, total)
    for _, entry in ipairs(series) do
      if entry.y[i] == native.null and total > 0 then entry.y[i] = 0 end
      if total == 0 and point.status == "ok" then entry.y[i], entry.status[i] = native.null, "no value" end
    end
  end
  local unit, factor = unit_for(ask.measure, largest)
  M.scale(series, factor)
  local x = points_of.axis_label(ask.axes)
  x.categories = categories.names
  return { kind = "stacked_bars", title = ask.title, x = x, y = { label = ask.label, unit = unit }, series = series,
    horizontal = ask.horizontal or nil }
end

--- Points with the same values of these axes, in the order of the folder.
-- @tparam[opt] string growing the points of each group are sorted by this axis
-- @treturn {table,...} name and points each
function M.groups(results, axes, growing)
  local list, by_name = {}, {}
  for _, point in ipairs(results.points) do
    local name = points_of.name(point, axes, true)
    if not by_name[name] then
      by_name[name] = { name = name, points = {} }
      list[#list + 1] = by_name[name]
    end
    table.insert(by_name[name].points, point)
  end
  for _, group in ipairs(growing and list or {}) do sorted_by(growing, group.points) end
  return list
end

--- A whole spec. Panels in one row get the room they need; more are put into columns.
-- @tparam string what is shown; the title is this and what the points share: "Peak memory: llama3-tiny, batch 2"
-- @tparam[opt] table look width, height, columns, note
function M.spec(what, results, panels, look)
  look = look or {}
  local subject = points_of.subject(results)
  local title = subject ~= "" and ("%s: %s"):format(what, subject) or what
  local columns = math.min(look.columns or #panels, #panels)
  local rows = math.ceil(#panels / columns)
  return {
    schema_version = 1, title = title, note = look.note, panels = panels, columns = rows > 1 and columns or nil,
    width = look.width or (columns == 1 and 900 or math.min(1600, 560 * columns)),
    height = look.height or (rows == 1 and 520 or math.min(2000, 60 + 400 * rows)),
  }
end

--- Sentence on what a bar of step times is.
function M.time_note(points)
  local least
  for _, point in ipairs(points) do
    local time = points_of.list(points_of.list(point.result).time)
    local count = points_of.number(points_of.list(time.step_ms).count)
    if type(time.samples_ms) == "table" then count = #time.samples_ms end
    if point.status ~= "ok" then count = nil end
    if count and (not least or count < least) then least = count end
  end
  if not least or least < 2 then return nil end
  return ("Median of %d steps after the warm-up; whiskers span the middle half of them."):format(least)
end

return M
