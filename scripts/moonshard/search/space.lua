--- What a search draws from: one dimension per option.
--   { log = { 1e-5, 1e-1 } }   numbers, even on a logarithmic scale
--   { uniform = { 0.5, 2 } }   numbers; { 0.5, 2.0 } is the same where the ends are not both whole
--   { int = { 1, 8 } }         whole numbers, both ends included; { int = { 1, 1024 }, log = true } evenly by size
--   { choice = { … } }         one of a list; any other list is the same
-- Inside, a dimension has coordinates in which it is even: `low` to `high`, of which whole numbers take half a step more on each side.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"

local M = {}

local forms = { "log", "uniform", "int", "choice" }

local function is_whole(value) return value == math.floor(value) and math.abs(value) < 2 ^ 53 end

local function is_number(value) return type(value) == "number" and value == value and math.abs(value) < math.huge end

local function fail(level, name, wanted, got) error(("search: space '%s': expected %s, got %s"):format(name, wanted, got), level + 1) end

local function shown(value)
  if type(value) ~= "table" then return tostring(value) end
  return ("{ %s }"):format(table.concat(lists.map(value, tostring), ", "))
end

local function check_range(name, range, level)
  local is_range = type(range) == "table" and #range == 2 and is_number(range[1]) and is_number(range[2])
  if not is_range then fail(level + 1, name, "{ low, high }", shown(range)) end
  if range[1] >= range[2] then fail(level + 1, name, "low below high", shown(range)) end
  return range[1], range[2]
end

--- A dimension of numbers between two ends.
local function numbers(name, low, high, is_log, is_int, level)
  if is_log and low <= 0 then fail(level + 1, name, "a logarithmic range above 0", tostring(low)) end
  if is_int and not (is_whole(low) and is_whole(high)) then fail(level + 1, name, "whole ends", ("%g and %g"):format(low, high)) end
  -- One argument: math.log would take a second one as its base.
  local function to(value) return is_log and math.log(value) or value end
  local function from(place) return is_log and math.exp(place) or place end
  local half = is_int and 0.5 or 0
  local dimension = { name = name, low = to(low - half), high = to(high + half), is_int = is_int, count = is_int and high - low + 1 }
  --- The value at a coordinate, within the ends whatever rounding does. To twelve digits: the last ones of a number may depend on whether
  -- LuaJIT has compiled the code that made it (fused multiplications on aarch64), and the same seed must give the same points.
  function dimension.value(place)
    local value = from(place)
    if is_int then value = math.floor(value + 0.5) else value = tonumber(("%.12g"):format(value)) end
    return math.max(low, math.min(high, value))
  end
  dimension.place = to
  --- Both ends of what a whole number stands for.
  function dimension.cell(value) return to(value - half), to(value + half) end
  return dimension
end

local function choices(name, list, level)
  if type(list) ~= "table" or #list == 0 then fail(level + 1, name, "a list of choices", shown(list)) end
  local index = {}
  for i, choice in ipairs(list) do
    local kind = type(choice)
    if kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
      fail(level + 1, name, "numbers, texts or booleans as choices", kind)
    end
    if index[choice] then fail(level + 1, name, "different choices", ("%s twice"):format(tostring(choice))) end
    index[choice] = i
  end
  return { name = name, choices = lists.merged(list), index = index, count = #list }
end

local function dimension_of(name, given, level)
  if type(given) ~= "table" then fail(level + 1, name, "{ low, high } or a list of choices", shown(given)) end
  if #given > 0 then
    local two_numbers = #given == 2 and is_number(given[1]) and is_number(given[2])
    if not two_numbers then return choices(name, given, level + 1) end
    if is_whole(given[1]) and is_whole(given[2]) then
      fail(level + 1, name, "{ uniform = … }, { int = … } or { choice = … }", shown(given) .. ", which may mean each of them")
    end
    local low, high = check_range(name, given, level + 1)
    return numbers(name, low, high, false, false, level + 1)
  end
  local options = guard.check(("search: space '%s'"):format(name), given, forms, level + 1)
  local is_log_int = options.int ~= nil and options.log == true
  local named = lists.select(forms, function(form) return options[form] ~= nil and not (is_log_int and form == "log") end)
  if #named ~= 1 then
    fail(level + 1, name, "one of log, uniform, int, choice", #named == 0 and "an empty table" or table.concat(named, " and "))
  end
  local form = named[1]
  if form == "choice" then return choices(name, options.choice, level + 1) end
  local low, high = check_range(name, options[form], level + 1)
  return numbers(name, low, high, form == "log" or is_log_int, form == "int", level + 1)
end

--- The dimensions of a space, sorted by name.
-- @tparam table given option = dimension
-- @tparam number level of the caller, as for error()
-- @treturn {table,...}
function M.read(given, level)
  if type(given) ~= "table" or next(given) == nil then
    error(("search: space: expected { option = { low, high } or { choices } }, got %s"):format(type(given) == "table" and "an empty table"
      or tostring(given)), level + 1)
  end
  for name in pairs(given) do
    if type(name) ~= "string" then error(("search: space: expected names of options, got %s"):format(tostring(name)), level + 1) end
  end
  return lists.map(lists.keys(given), function(name) return dimension_of(name, given[name], level + 3) end)
end

--- How many different points there are; infinite with a dimension of real numbers.
function M.size(dimensions)
  local size = 1
  for _, dimension in ipairs(dimensions) do size = size * (dimension.count or math.huge) end
  return size
end

--- A value of a dimension, all alike.
function M.draw(dimension, generator)
  if dimension.choices then return dimension.choices[generator:index(#dimension.choices)] end
  return dimension.value(dimension.low + generator:uniform() * (dimension.high - dimension.low))
end

--- Values of all dimensions as one text.
function M.key(dimensions, values)
  return table.concat(lists.map(dimensions, function(dimension)
    local value = values[dimension.name]
    return type(value) == "number" and ("%.17g"):format(value) or type(value) .. tostring(value)
  end), "\0")
end

return M
