--- Rows as series of a plot spec: groups, places on the x axis, and one figure with its spread where rows repeat.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local plot_spec = require "moonshard.plot_spec"

local M = {}

--- Spreads around a figure of several samples, by name: low and high end.
M.spreads = {
  iqr = function(samples) return unpack(native.analysis.quartiles(samples)) end,
  range = function(samples)
    local low, high = samples[1], samples[1]
    for _, sample in ipairs(samples) do low, high = math.min(low, sample), math.max(high, sample) end
    return low, high
  end,
}

local function mean_and_deviation(samples)
  local mean, squares = native.analysis.statistic(samples, "mean"), 0
  for _, sample in ipairs(samples) do squares = squares + (sample - mean) ^ 2 end
  return mean, math.sqrt(squares / (#samples - 1))
end

function M.spreads.std(samples)
  local mean, deviation = mean_and_deviation(samples)
  return mean - deviation, mean + deviation
end

function M.spreads.sem(samples)
  local mean, deviation = mean_and_deviation(samples)
  local error_of_mean = deviation / math.sqrt(#samples)
  return mean - error_of_mean, mean + error_of_mean
end

M.spread_words = { iqr = "whiskers span the middle half", range = "whiskers span all", std = "whiskers are one standard deviation",
  sem = "whiskers are one standard error" }

--- The text of a value in names: numbers with the name of their column.
local function word(name, value)
  if type(value) == "number" then return ("%s %s"):format(name:gsub("_", " "), ("%.14g"):format(value)) end
  return tostring(value)
end

--- "ghost", or "batch size 8, ghost" of several columns.
function M.group_name(row, columns)
  return table.concat(lists.map(columns, function(name) return word(name, row[name]) end), ", ")
end

--- Rows that have the same values of some columns, in the order in which they first come.
-- @treturn {table,...} each name and rows
function M.groups(rows, columns)
  local list, by_name = {}, {}
  for _, row in ipairs(rows) do
    local name = M.group_name(row, columns)
    if not by_name[name] then
      by_name[name] = { name = name, rows = {} }
      list[#list + 1] = by_name[name]
    end
    table.insert(by_name[name].rows, row)
  end
  return list
end

--- Whether a column has a value that is no number.
function M.has_words(rows, name)
  for _, row in ipairs(rows) do
    if row[name] ~= nil and type(row[name]) ~= "number" then return true end
  end
  return false
end

--- Distinct values of a column: numbers by size, then texts as they first come.
function M.distinct(rows, name)
  local values = lists.unique(lists.column(rows, name))
  local place = {}
  for i, value in ipairs(values) do place[value] = i end
  table.sort(values, function(a, b)
    local both = type(a) == "number" and type(b) == "number"
    if both then return a < b end
    return place[a] < place[b]
  end)
  return values
end

local function bounds_of(row, error_of, figure)
  if type(error_of) == "table" then return plot_points.number(row[error_of.low]), plot_points.number(row[error_of.high]) end
  local half = plot_points.number(row[error_of])
  if half then return figure - half, figure + half end
end

--- One point of several rows: the statistic of their figures, and its spread.
local function summary(rows, ask)
  local samples = {}
  for _, row in ipairs(rows) do samples[#samples + 1] = plot_points.number(row[ask.y]) end
  if #samples == 0 then
    local row = rows[1]
    local status = row[ask.y] == nil and "no value" or tostring(row[ask.y])
    if row.status ~= nil and row.status ~= "ok" then status = tostring(row.status) end
    return { status = status, is_missing = row[ask.y] == nil and status == "no value" }
  end
  local point = { y = #samples == 1 and samples[1] or native.analysis.statistic(samples, ask.stat), count = #samples, status = "ok" }
  if M.spreads[ask.error] and #samples > 1 then point.low, point.high = M.spreads[ask.error](samples) end
  if ask.error and not M.spreads[ask.error] then point.low, point.high = bounds_of(rows[1], ask.error, samples[1]) end
  return point
end

--- Places of a group: its rows by their x, in the order of the axis.
local function places_of(rows, ask)
  if ask.keeps_rows then return lists.map(rows, function(row) return { x = row[ask.x], rows = { row } } end) end
  local by_x, list = {}, {}
  for _, row in ipairs(rows) do
    local x = row[ask.x]
    if x ~= nil then
      if not by_x[x] then
        by_x[x] = { x = x, rows = {} }
        list[#list + 1] = by_x[x]
      end
      table.insert(by_x[x].rows, row)
    end
  end
  if not ask.categories then table.sort(list, function(a, b) return a.x < b.x end) end
  return list
end

--- One series.
-- @tparam table ask x, y (columns), stat, error (a spread's name, a column, or { low, high }), text (column), keeps_rows,
-- categories (list from plot_spec.ordered)
-- @treturn table series; nil where no row has a figure
-- @treturn number most samples of one point
function M.series(name, rows, ask)
  local entry = { name = name, x = {}, y = {}, status = {}, texts = ask.text and {} or nil }
  local has_spread, has_figure, most = false, false, 0
  local low, high = {}, {}
  for _, place in ipairs(places_of(rows, ask)) do
    local point = summary(place.rows, ask)
    local x = ask.categories and ask.categories:add(tostring(place.x)) or plot_points.number(place.x)
    if not point.is_missing and (x or not point.y) then
      local n = #entry.x + 1
      entry.x[n], entry.y[n], entry.status[n] = x or native.null, point.y or native.null, point.status
      low[n], high[n] = point.low or native.null, point.high or native.null
      if ask.text then entry.texts[n] = tostring(place.rows[1][ask.text] or "") end
      has_spread, has_figure, most = has_spread or point.low ~= nil, has_figure or point.y ~= nil, math.max(most, point.count or 0)
    end
  end
  if has_spread then entry.low, entry.high = low, high end
  return has_figure and entry or nil, most
end

--- Rows of a heat map: a series per value of a column.
-- @treturn {table,...} series; the map's columns are added to ask.categories
function M.heat_rows(rows, row_column, ask)
  for _, value in ipairs(M.distinct(rows, ask.x)) do ask.categories:add(tostring(value)) end
  local list = {}
  for _, value in ipairs(M.distinct(rows, row_column)) do
    local own = lists.select(rows, function(row) return row[row_column] == value end)
    list[#list + 1] = M.series(tostring(value), own, ask)
  end
  return list
end

--- A stacked area has the same x in all series, in rising order: figures that some lack are 0.
function M.align(series)
  local all = {}
  for _, entry in ipairs(series) do
    for _, x in ipairs(entry.x) do all[x] = true end
  end
  local places = lists.keys(all)
  for _, entry in ipairs(series) do
    local own = {}
    for i, x in ipairs(entry.x) do own[x] = entry.y[i] end
    entry.x, entry.y = places, lists.map(places, function(x) return own[x] or 0 end)
    entry.status, entry.low, entry.high, entry.texts = nil, nil, nil, nil
  end
end

M.ordered = plot_spec.ordered

return M
