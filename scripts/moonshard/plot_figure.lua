--- ms.plot: a figure of one's own from any data, as PNG, SVG and PDF.
local data_of = require "moonshard.plot_data"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_files = require "moonshard.plot_files"
local plot_points = require "moonshard.plot_points"
local series_of = require "moonshard.plot_series"

local Figure = {}
Figure.__index = Figure
local M = { class = Figure }

local kinds = { line = "lines", lines = "lines", points = "scatter", scatter = "scatter", bar = "bars", bars = "bars",
  stacked_bars = "stacked_bars", area = "stacked_area", stacked_area = "stacked_area", heatmap = "heat_map", heat_map = "heat_map" }
M.kinds = { "lines", "points", "bars", "stacked_bars", "area", "heatmap" }
M.options = { "data", "x", "y", "group", "color", "value", "panels", "kind", "stat", "error", "text", "log", "horizontal", "title", "note",
  "x_label", "y_label", "x_unit", "y_unit", "x_range", "y_range", "references", "size", "scale", "theme", "out" }
local most_panels = 16

local function fail(level, form, ...) error("ms.plot: " .. form:format(...), level + 1) end

local function names_of(value) return type(value) == "table" and value or { value } end

local function check_choice(ask, key, choices, level, others)
  local value = ask[key]
  if value == nil or lists.contains(choices, value) or others and others[value] then return end
  fail(level + 1, "option '%s': expected %s, got '%s'%s", key, table.concat(choices, ", "), tostring(value),
    guard.hint(tostring(value), choices))
end

local function check_types(ask, level)
  local function check(key, accepts, words)
    if ask[key] == nil or accepts(ask[key]) then return end
    fail(level + 2, "option '%s': expected %s, got %s", key, words, tostring(ask[key]))
  end
  local function is_text(value) return type(value) == "string" end
  local function is_range(value) return type(value) == "table" and type(value[1]) == "number" and type(value[2]) == "number" end
  local function are_texts(value)
    return is_text(value) or type(value) == "table" and #value > 0 and #lists.select(value, is_text) == #value
  end
  for _, key in ipairs { "x", "value", "panels", "text", "title", "note", "x_label", "y_label", "x_unit", "y_unit", "size" } do
    check(key, is_text, "a text")
  end
  for _, key in ipairs { "y", "group", "color", "out" } do check(key, are_texts, "a text or a list of texts") end
  for _, key in ipairs { "x_range", "y_range" } do check(key, is_range, "{ low, high }") end
  check("references", function(value)
    return type(value) == "table" and #lists.select(value, function(line) return type(line) == "table" end) == #value and #value > 0
  end, "a list of { y = 1, text = … }")
  check("scale", function(value) return type(value) == "number" and value >= 1 and value <= 4 end, "1 to 4")
  check("error", function(value)
    return value == false or is_text(value) or type(value) == "table" and is_text(value.low) and is_text(value.high)
  end, "iqr, std, sem, range, false, a column, or { low = column, high = column }")
  check_choice(ask, "kind", M.kinds, level + 1, kinds)
  check_choice(ask, "stat", { "median", "mean" }, level + 1)
  check_choice(ask, "log", { "x", "y", "xy" }, level + 1)
  check_choice(ask, "theme", { "light", "dark" }, level + 1)
end

--- What a call asks for, checked; data may be the first item.
local function read(given, level)
  if type(given) ~= "table" then
    fail(level + 1, "expected a table, got %s; write ms.plot { rows, x = \"step\", y = \"loss\" }", type(given))
  end
  local named = {}
  for key, value in pairs(given) do
    if key == 1 then named.data = value elseif key ~= 2 then named[key] = value end
  end
  if given[2] ~= nil then fail(level + 1, "expected one item of data, got more; put rows into one list") end
  local ask = guard.check("ms.plot", named, M.options, level + 1)
  check_types(ask, level + 1)
  ask.group = names_of(ask.group or ask.color)
  ask.y = names_of(ask.y or "y")
  ask.x = ask.x or "x"
  return ask
end

local function axis(name, label, unit, is_log, range)
  local words = plot_points.axis_words[name] or {}
  return { label = label or words.title or (name:gsub("_", " ")), unit = unit or not label and words.unit or nil,
    scale = is_log and "log" or nil, min = range and range[1], max = range and range[2] }
end

--- The columns that a request names.
local function columns_of(ask, has_index)
  local names = lists.extend({}, ask.y, ask.group)
  if not has_index then names[#names + 1] = ask.x end
  names[#names + 1] = ask.value
  names[#names + 1] = ask.panels
  names[#names + 1] = ask.text
  if type(ask.error) == "table" then lists.extend(names, { ask.error.low, ask.error.high }) end
  if type(ask.error) == "string" and not series_of.spreads[ask.error] then names[#names + 1] = ask.error end
  return names
end

--- Series of all groups and figures of one panel.
local function all_series(rows, ask, how)
  local list, most = {}, 0
  local groups = #ask.group > 0 and series_of.groups(rows, ask.group) or { { name = "", rows = rows } }
  for _, group in ipairs(groups) do
    for _, y in ipairs(ask.y) do
      local label = y:gsub("_", " ")
      local name = group.name == "" and label or #ask.y > 1 and ("%s, %s"):format(group.name, label) or group.name
      local entry, count = series_of.series(name, group.rows, lists.merged(how, { y = y }))
      list[#list + 1], most = entry, math.max(most, count)
    end
  end
  return list, most
end

local function heat_panel(rows, ask, how)
  local value = ask.value
  how.categories = series_of.ordered()
  local series = series_of.heat_rows(rows, ask.y[1], lists.merged(how, { y = value }))
  local x = axis(ask.x, ask.x_label, ask.x_unit)
  x.categories = how.categories.names
  return { kind = "heat_map", x = x, y = axis(ask.y[1], ask.y_label, ask.y_unit), value = axis(value), series = series }, 0
end

--- Reference lines as specs have them: { y = 1 } is a list of one.
local function references_of(ask)
  return ask.references and lists.map(ask.references, function(line)
    local function list(value) return type(value) == "number" and { value } or value end
    return lists.merged(line, { x = list(line.x), y = list(line.y) })
  end)
end

local function panel_of(rows, ask, kind)
  local has_words = series_of.has_words(rows, ask.x)
  local how = { x = ask.x, stat = ask.stat, error = ask.error or nil, text = ask.text, keeps_rows = kind == "scatter" }
  if kind == "heat_map" then return heat_panel(rows, ask, how) end
  if has_words then how.categories = series_of.ordered() end
  local series, most = all_series(rows, ask, how)
  if kind == "stacked_area" then series_of.align(series) end
  local logs = ask.log or ""
  local x = axis(ask.x, ask.x_label, ask.x_unit, logs:find("x") and not has_words, ask.x_range)
  if has_words then x.categories = how.categories.names end
  local y_name = #ask.y == 1 and ask.y[1] or ""
  return { kind = kind, x = x, y = axis(y_name, ask.y_label, ask.y_unit, logs:find("y") ~= nil, ask.y_range), series = series,
    references = references_of(ask), horizontal = ask.horizontal or nil }, most
end

--- Says what a point of several rows is.
local function note_of(ask, most)
  if most < 2 then return nil end
  local spread = series_of.spread_words[ask.error]
  return ("%s of up to %d rows per point%s."):format(ask.stat == "mean" and "Mean" or "Median", most, spread and "; " .. spread or "")
end

--- The plot spec that a request asks for.
local function spec_of(ask, level)
  -- Without the column "x" rows are counted.
  local rows = data_of.rows(ask.data, "ms.plot", columns_of(ask), level + 1)
  local counts = ask.x == "x" and not lists.contains(data_of.names(rows), "x")
  if counts then rows = lists.map(rows, function(row, i) return lists.merged(row, { x = i }) end) end
  data_of.check_names(rows, columns_of(ask, counts), "ms.plot", level + 1)
  local kind = kinds[ask.kind] or series_of.has_words(rows, ask.x) and "bars" or "lines"
  if kind == "heat_map" and not ask.value then
    fail(level + 1, "option 'value': expected the column that colours a heatmap, got nothing; x and y are its columns and rows")
  end
  if kind == "stacked_area" and series_of.has_words(rows, ask.x) then
    fail(level + 1, "option 'x': expected numbers for an area, got texts in '%s'", ask.x)
  end
  if ask.error == nil then ask.error = "iqr" end
  ask.stat = ask.stat or (ask.error == "std" or ask.error == "sem") and "mean" or "median"
  local groups = ask.panels and series_of.groups(rows, { ask.panels }) or { { name = "", rows = rows } }
  if #groups > most_panels then fail(level + 1, "option 'panels': expected at most %d values, got %d", most_panels, #groups) end
  local panels, most = {}, 0
  for _, group in ipairs(groups) do
    local panel, count = panel_of(group.rows, ask, kind)
    if #panel.series > 0 then
      panel.title = group.name
      panels[#panels + 1], most = panel, math.max(most, count)
    end
  end
  local is_column = ask.error and not series_of.spreads[ask.error]
  if is_column and most > 1 then
    fail(level + 1, "option 'error': expected one row per point beside a column of errors, got %d; name the other columns in group, or "
      .. "let the spread of the rows be drawn (iqr, std, sem, range)", most)
  end
  if #panels == 0 then
    fail(level + 1, "expected a number of '%s' in some row, got none in %d rows", ask.value or table.concat(ask.y, "', '"), #rows)
  end
  local columns = #panels > 3 and math.ceil(math.sqrt(#panels)) or #panels
  local spec = { schema_version = 1, title = ask.title or "", note = ask.note or note_of(ask, most), panels = panels,
    columns = #panels > columns and columns or nil, width = columns == 1 and 900 or math.min(1600, 560 * columns),
    height = #panels > columns and 60 + 380 * math.ceil(#panels / columns) or 520 }
  if ask.size then spec.width, spec.height = plot_files.read_size("ms.plot", ask.size, level + 1) end
  return spec
end

--- Draws a spec into one file; its name's ending is the format.
local function draw(spec, path, look, level)
  local format = plot_files.check_format("ms.plot: option 'out'", path:match("%.(%a+)$") or path, level + 1):lower()
  if format ~= "png" then return plot_files.draw_vectors(spec, path, format, look.theme) end
  local spec_path = path:gsub("%.png$", "") .. ".plot.json"
  native.files.write(spec_path, native.records.to_json(spec))
  local drawn, reason = plot_files.draw_png({ { spec = spec_path, out = path } }, look)
  os.remove(spec_path)
  if not drawn then fail(level + 1, "%s could not be drawn: %s; out = \"NAME.svg\" and \"NAME.pdf\" need no viewer", path, reason) end
end

--- A name for a figure that is only looked at.
local function temporary_path()
  local name = os.tmpname()
  os.remove(name)
  return name .. ".png"
end

--- A figure of one's own.
-- @tparam table given data as its first item (rows, columns, results, a table), and options: see M.options
-- @treturn Figure
-- @usage ms.plot { rows, x = "step", y = "loss", group = "mode", log = "y", out = { "loss.png", "loss.pdf" } }
function M.plot(given)
  local ask = read(given, 2)
  local figure = setmetatable({ spec = spec_of(ask, 2), look = { scale = ask.scale, theme = ask.theme } }, Figure)
  for _, path in ipairs(names_of(ask.out or temporary_path())) do
    draw(figure.spec, path, figure.look, 2)
    figure[#figure + 1] = path
  end
  return figure
end

--- Draws the figure into more files.
-- @tparam string ... paths that end in .png, .svg or .pdf
-- @treturn Figure itself
function Figure:save(...)
  for _, path in ipairs { ... } do
    draw(self.spec, tostring(path), self.look, 2)
    self[#self + 1] = path
  end
  return self
end

function Figure:__tostring() return table.concat(self, "\n") end

return M
