--- The points of a sweep: a grid crossed with lists that advance together, each checked before any work starts.
local blame = require "moonshard.sweep.blame"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

local most_points = 100000

local function module_table() return package.loaded["moonshard"] end

local names_by_spelling

--- The schema's own name of an option by each of its spellings.
function M.own_names()
  if names_by_spelling then return names_by_spelling end
  local own = {}
  for _, option in ipairs(module_table().options()) do
    own[option.name] = option.name
    for _, alias in ipairs(option.aliases) do own[alias] = option.name end
  end
  names_by_spelling = own
  return own
end

--- The table with the schema's own names: "sigma" and "seq-length" are other spellings of two options, and
-- results are looked up by the effective name.
-- @tparam table options
-- @tparam[opt="ms.sweep"] string where opens the message
function M.with_own_names(options, where)
  local own, renamed = M.own_names(), {}
  for key, value in pairs(options) do
    local name = type(key) == "string" and own[(key:gsub("-", "_"))] or key
    if renamed[name] ~= nil then
      blame("%s: option '%s': expected it once, got it in two spellings", where or "ms.sweep", tostring(name))
    end
    renamed[name] = value
  end
  return renamed
end

--- Raises unless every key is a key of the function's own or an experiment option, and names all of both.
-- @tparam string where opens the message
-- @tparam table given what the user wrote
-- @tparam {string,...} own_keys
function M.check_keys(where, given, own_keys)
  local names, is_own = M.own_names(), lists.set(own_keys)
  local known = lists.extend({}, own_keys, module_table().option_names())
  for key in pairs(given) do
    local name = tostring(key)
    if not is_own[key] and not (type(key) == "string" and names[(key:gsub("-", "_"))]) then
      local candidates = lists.extend({}, known, lists.keys(names))
      blame("%s", ("%s: unknown option '%s'%s known: %s"):format(where, name:sub(1, 60),
        guard.hint(name:sub(1, 60), candidates, ";"), table.concat(known, ", ")))
    end
  end
end

local function check_list(where, key, values)
  if type(values) ~= "table" or #values == 0 then
    blame("ms.sweep: %s '%s': expected a list of values, got %s", where, tostring(key),
      type(values) == "table" and "an empty table" or tostring(values))
  end
  local count = 0
  for _ in pairs(values) do count = count + 1 end
  if #lists.extend({}, values) < count then
    blame("ms.sweep: %s '%s': expected a list of values, got a hole or a name in it", where, tostring(key))
  end
end

--- One dimension per axis of the grid and one for all lists of the zip, in the order of the option schema, because
-- Lua tables have no order.
local function dimensions(grid, zip)
  local rank, list = {}, {}
  for i, name in ipairs(module_table().option_names()) do rank[name] = i end
  local function before(a, b) return (rank[a] or 0) < (rank[b] or 0) or (rank[a] == rank[b] and a < b) end
  for axis, values in pairs(grid) do
    check_list("grid", axis, values)
    list[#list + 1] = { names = { axis }, rows = lists.map(values, function(value) return { [axis] = value } end) }
  end
  local names, length, first = {}, nil, nil
  for axis, values in pairs(zip) do
    check_list("zip", axis, values)
    if grid[axis] then blame("ms.sweep: option '%s': expected it in grid or in zip, got it in both", axis) end
    if length and #values ~= length then
      blame("ms.sweep: zip: expected lists of one length, got %d values of '%s' and %d of '%s'", length, first, #values, axis)
    end
    names[#names + 1], length, first = axis, #values, axis
  end
  if length then
    table.sort(names, before)
    local rows = {}
    for i = 1, length do
      rows[i] = {}
      for _, axis in ipairs(names) do rows[i][axis] = zip[axis][i] end
    end
    list[#list + 1] = { names = names, rows = rows }
  end
  table.sort(list, function(a, b) return before(a.names[1], b.names[1]) end)
  return list
end

--- Every combination of one row of each dimension; a dimension has `rows`, tables of options.
function M.cartesian(list)
  local points = { {} }
  for _, dimension in ipairs(list) do
    local longer = {}
    if #points * #dimension.rows > most_points then
      blame("ms.sweep: expected at most %d points, got more; split the sweep", most_points)
    end
    for _, point in ipairs(points) do
      for _, row in ipairs(dimension.rows) do longer[#longer + 1] = lists.merged(point, row) end
    end
    points = longer
  end
  return points
end

local function short(value)
  return type(value) == "number" and value ~= math.floor(value) and ("%.6g"):format(value) or tostring(value)
end

--- Short text of a point: "mode=none seq_length=64".
function M.label(axes, point)
  local parts = {}
  for _, axis in ipairs(axes) do
    if point.asked[axis] ~= nil then parts[#parts + 1] = ("%s=%s"):format(axis, short(point.asked[axis])) end
  end
  return #parts > 0 and table.concat(parts, " ") or point.options.model or "point"
end

--- Points that match all of { option = glob }, by their effective value or as the user wrote it.
function M.matching(points, only)
  return lists.select(points, function(point)
    for key, pattern in pairs(only) do
      local glob = "^" .. tostring(pattern):gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
      if not tostring(point.options[key]):match(glob) and not tostring((point.asked or {})[key]):match(glob) then return false end
    end
    return true
  end)
end

--- The name of a point's file of the profiling suites, where several may have one.
local function suite_name(asked, own, common, id)
  local function value(key) return own[key] == nil and common[key] or own[key] end
  local mode = asked.mode or value("mode")
  return mode and ("%s_seq%s"):format(tostring(mode), tostring(value("seq_length"))) or "point_" .. id
end

--- Points of a sweep hold what differs between them; options, label and file are made when they are looked at.
-- @tparam table common options of all
-- @tparam table seen how many points have each suite_name
local function point_meta(axes, common, seen)
  local makers = {
    options = function(point) return lists.merged(common, point.own) end,
    label = function(point) return M.label(axes, point) end,
    file = function(point)
      local name = suite_name(point.asked, point.own, common, point.id)
      return ("%s%s_result.json"):format(name, (seen[name] or 0) > 1 and "_" .. point.id:sub(1, 8) or "")
    end,
  }
  return { __index = function(point, key)
    local make = makers[key]
    return make and make(point)
  end }
end

--- Effective options and id, found without touching a GPU: this process would hold memory on it while its
-- children are measured.
function M.resolve(options)
  local ok, resolved = pcall(native.launch.plan_point, options)
  if ok then return resolved end
  return nil, (tostring(resolved):gsub("^.-experiment:", "ms.sweep:"):gsub("^launch%.plan_point:", "ms.sweep:"))
end

--- The program's own defaults, by option.
function M.defaults()
  local defaults = {}
  for _, option in ipairs(module_table().options()) do defaults[option.name] = option.default end
  return defaults
end

--- Options of a point of the script's own function: what the sweep names, with all that experiment options imply where it
-- names some. Other names are the function's.
local function resolve_own(options)
  local own_names, known, others = M.own_names(), {}, {}
  for key, value in pairs(options) do
    if own_names[key] then known[key] = value else others[key] = value end
  end
  local resolved, problem = { options = {} }, nil
  if next(known) ~= nil then resolved, problem = M.resolve(known) end
  if not resolved then return nil, problem end
  local all = lists.merged(resolved.options, others)
  return { options = all, id = native.records.options_hash(all) }
end

local function resolve_point(asked, shared, when, is_own)
  local options = lists.merged(shared, asked)
  local resolved, problem = (is_own and resolve_own or M.resolve)(options)
  -- Options that cannot be resolved may be just the ones that `when` excludes.
  if when and not when(resolved and resolved.options or lists.merged(M.defaults(), options), asked) then return nil end
  if not resolved then blame("%s", problem) end
  local index = type(options.device) == "string" and options.device:match("^cuda:(%d+)$")
  return { id = resolved.id, asked = asked, gpu = tonumber(index) }, resolved.options
end

local absent = {} -- in a point's own options: it lacks what the first has

--- Notes in `own` where options differ from the first point's.
local function compare(first, options, own, varies)
  for key, value in pairs(options) do
    if first[key] ~= value then own[key], varies[key] = value, true end
  end
  for key in pairs(first) do
    if options[key] == nil then own[key], varies[key] = absent, true end
  end
  return own
end

--- Gives every point all options that vary, and returns the rest, which all share.
local function split(first, points, varies)
  local keys, common = lists.keys(varies), {}
  for key, value in pairs(first) do
    if not varies[key] then common[key] = value end
  end
  for _, point in ipairs(points) do
    local own, is_as_asked = point.own, true
    for _, key in ipairs(keys) do
      if own[key] == nil then own[key] = first[key] end
      if own[key] == absent then own[key] = nil end
      is_as_asked = is_as_asked and own[key] == point.asked[key]
    end
    -- One table instead of two, for most points.
    if is_as_asked then point.own = point.asked end
  end
  return common
end

--- All points of a sweep.
-- @tparam table grid and zip with the schema's own names
-- @tparam table shared options of all points
-- @tparam[opt] boolean is_own whether the points are of a function of the script
-- @treturn {table,...} points { id, options, asked, file, label, gpu, own = options that are not common to all }
-- @treturn {string,...} axes
-- @treturn table options that all points share
function M.make(grid, zip, shared, when, is_own)
  local list = dimensions(grid, zip)
  local axes = lists.extend({}, unpack(lists.column(list, "names")))
  local points, place_of, first, varies = {}, {}, nil, {}
  for _, asked in ipairs(M.cartesian(list)) do
    local point, options = resolve_point(asked, shared, when, is_own)
    if point then
      if place_of[point.id] then
        blame("ms.sweep: expected different points, got two of the same effective options (%s)",
          M.label(axes, { asked = asked, options = options }))
      end
      first = first or options
      place_of[point.id], point.own = true, compare(first, options, {}, varies)
      points[#points + 1] = point
      -- Each point leaves a table of all options behind; the collector would wait until they outweigh the points.
      if #points % 5000 == 0 then collectgarbage() end
    end
  end
  for _, axis in ipairs(axes) do varies[axis] = first ~= nil and first[axis] ~= nil or varies[axis] end
  local common, seen = split(first or {}, points, varies), {}
  local meta = point_meta(axes, common, seen)
  for _, point in ipairs(points) do
    local name = suite_name(point.asked, point.own, common, point.id)
    if name:sub(1, 6) ~= "point_" then seen[name] = (seen[name] or 0) + 1 end
    setmetatable(point, meta)
  end
  return points, axes, common
end

--- A copy in another order, the same for the same seed (Park and Miller's generator: Lua's own is the script's).
function M.shuffled(points, seed)
  local order, state = lists.extend({}, points), seed % 2147483646 + 1
  for i = #order, 2, -1 do
    state = state * 16807 % 2147483647
    local j = state % i + 1
    order[i], order[j] = order[j], order[i]
  end
  return order
end

return M
