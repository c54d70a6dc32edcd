--- Building blocks of the figures in scripts/moonshard/plot: records in, plot specs out (docs/plots.md).
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
-- @tparam {table,...} points
-- @tparam table ask series, x (functions of a point: name, and category or number), value (function; nil: no figure),
-- spread (optional: low and high), text, stack (optional), categories (list from M.ordered, or nil for a numeric axis),
-- colors (optional: name -> index of the palette)
-- @treturn {table,...} series; nil when no point has a figure
-- @treturn number largest absolute figure
function M.collect(points, ask)
  local series, by_name, largest = {}, {}, nil
  for _, point in ipairs(points) do
    local name, stack = ask.series(point), ask.stack and ask.stack(point) or nil
    local key = name .. "\0" .. (stack or "")
    local entry = by_name[key]
    if not entry then
      entry = { name = name, stack = stack, x = {}, y = {}, status = {}, labels = {}, color = ask.colors and ask.colors[name] }
      by_name[key] = entry
      series[#series + 1] = entry
    end
    local figure = point.status == "ok" and points_of.number(ask.value(point)) or nil
    local place = ask.x(point)
    local n = #entry.y + 1
    if type(place) ~= "number" then
      entry.x[n] = ask.categories and ask.categories:add(tostring(place)) or native.null
    else
      entry.x[n] = place
    end
    entry.y[n] = figure == nil and native.null or figure
    entry.status[n] = point.status == "ok" and figure == nil and "no value" or tostring(point.status)
    entry.labels[n] = points_of.name(point, points_of.list(ask.axes), true)
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
  if not largest then return nil end
  return series, largest
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
  local order, colors = M.ordered(), {}
  for _, point in ipairs(results.points) do order:add(name_of(point)) end
  for name, index in pairs(order.index) do colors[name] = index end
  return colors
end

--- One bar per point: categories are the other axes' values, series those of the series axis.
-- @tparam Runs results
-- @tparam table ask value (function of a point), measure ("bytes", "ms", or a unit), label, title; spread, keep, series optional
-- @treturn table panel; nil when no point has a figure
function M.grouped(results, ask)
  local axis = points_of.series_axis(results, ask)
  local axes = points_of.other_axes(results, axis)
  local chosen = {}
  for _, point in ipairs(results.points) do
    if not ask.keep or ask.keep(point) then chosen[#chosen + 1] = point end
  end
  local categories = M.ordered()
  local function series_name(point) return points_of.name(point, { axis }) end
  local series, largest = M.collect(chosen, {
    series = series_name, x = function(point) return points_of.name(point, axes) .. "" end, value = ask.value, spread = ask.spread,
    categories = categories, colors = M.colors(results, series_name), axes = points_of.varying(results),
  })
  if not series then return nil end
  local unit, factor = ask.measure, 1
  if units[ask.measure] then unit, factor = units[ask.measure](largest) end
  M.scale(series, factor)
  local x = points_of.axis_label(axes)
  x.categories = categories.names
  return { kind = "bars", title = ask.title, x = x, y = { label = ask.label, unit = unit }, series = series }
end

--- Lines over a numeric axis, one panel per combination of the remaining axes.
-- @tparam Runs results
-- @tparam table ask axis, value, measure, label; spread, log (both axes) optional
-- @treturn {table,...} panels; nil when no point has a figure
function M.lines_over(results, ask)
  local axis, series_axis = ask.axis, points_of.series_axis(results, ask)
  local rest = points_of.other_axes(results, axis, series_axis)
  local groups, by_name = M.ordered(), {}
  for _, point in ipairs(results.points) do
    local name = #rest > 0 and points_of.name(point, rest, true) or ""
    groups:add(name)
    by_name[name] = by_name[name] or {}
    table.insert(by_name[name], point)
  end
  local joined = #groups.names > 6  -- too many panels: the rest goes into the names of lines
  local function series_name(point) return points_of.name(point, joined and points_of.other_axes(results, axis) or { series_axis }) end
  local panels, all_largest = {}, 0
  for _, group in ipairs(joined and { false } or groups.names) do
    local chosen = {}
    for i, point in ipairs(group and by_name[group] or results.points) do chosen[i] = point end
    table.sort(chosen, function(a, b)
      return (tonumber(points_of.axis_value(a, axis)) or 0) < (tonumber(points_of.axis_value(b, axis)) or 0)
    end)
    local series, largest = M.collect(chosen, {
      series = series_name, x = function(point) return points_of.number(points_of.axis_value(point, axis)) end, value = ask.value,
      spread = ask.spread, colors = M.colors(results, series_name), axes = points_of.varying(results),
    })
    if series then
      all_largest = math.max(all_largest, largest)
      local x = points_of.axis_label { axis }
      x.scale = "log"
      panels[#panels + 1] = { kind = "lines", title = group or "", x = x, series = series,
        y = { label = ask.label, scale = ask.log and "log" or "linear", min = not ask.log and 0 or nil } }
    end
  end
  if #panels == 0 then return nil end
  local unit, factor = ask.measure, 1
  if units[ask.measure] then unit, factor = units[ask.measure](all_largest) end
  for _, panel in ipairs(panels) do
    M.scale(panel.series, factor)
    panel.y.unit = unit
    -- Panels that are read against each other share one scale.
    if #panels > 1 and not ask.log then panel.y.max = all_largest > 0 and all_largest * factor * 1.08 or nil end
  end
  return panels
end

--- Stacked bars: for each point a stack of parts.
-- @tparam {table,...} points
-- @tparam table ask parts (list of names), value (function of point and part), category (function of a point), axes, measure,
-- label, title; horizontal optional
-- @treturn table panel; nil when no point has a figure
function M.stacked(points, ask)
  local categories = M.ordered()
  for _, point in ipairs(points) do categories:add(ask.category(point)) end
  local series, largest = {}, 0
  for _, part in ipairs(ask.parts) do
    local entry = { name = points_of.shown(part), x = {}, y = {}, status = {}, labels = {} }
    local any = false
    for i, point in ipairs(points) do
      local figure = point.status == "ok" and points_of.number(ask.value(point, part)) or nil
      any = any or (figure ~= nil and figure > 0)
      entry.x[i] = categories.index[ask.category(point)]
      entry.y[i] = figure and math.max(figure, 0) or native.null
      entry.status[i] = tostring(point.status)
      entry.labels[i] = points_of.name(point, ask.axes or {}, true)
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
  local unit, factor = ask.measure, 1
  if units[ask.measure] then unit, factor = units[ask.measure](largest) end
  M.scale(series, factor)
  local x = points_of.axis_label(ask.axes or {})
  x.categories = categories.names
  return { kind = "stacked_bars", title = ask.title, x = x, y = { label = ask.label, unit = unit }, series = series,
    horizontal = ask.horizontal or nil }
end

--- Points with the same values of these axes, in the order of the folder.
-- @treturn {table,...} name and points each
function M.groups(results, axes)
  local list, by_name = {}, {}
  for _, point in ipairs(results.points) do
    local name = points_of.name(point, axes, true)
    if not by_name[name] then
      by_name[name] = { name = name, points = {} }
      list[#list + 1] = by_name[name]
    end
    table.insert(by_name[name].points, point)
  end
  return list
end

--- A whole spec. Panels in one row get the room they need; more are put into columns.
-- @tparam string title
-- @tparam {table,...} panels
-- @tparam[opt] table look width, height, columns, note
function M.spec(title, panels, look)
  look = look or {}
  local columns = math.min(look.columns or #panels, #panels)
  local rows = math.ceil(#panels / columns)
  return {
    schema_version = 1, title = title, note = look.note, panels = panels, columns = rows > 1 and columns or nil,
    width = look.width or (columns == 1 and 900 or math.min(1600, 560 * columns)),
    height = look.height or (rows == 1 and 520 or math.min(2000, 60 + 400 * rows)),
  }
end

--- "Peak memory: llama3-tiny, batch 2".
function M.title(what, results)
  local subject = points_of.subject(results)
  return subject ~= "" and ("%s: %s"):format(what, subject) or what
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
