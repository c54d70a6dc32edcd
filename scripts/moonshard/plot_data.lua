--- Data of any kind that ms.plot takes, as rows: tables by the names of columns.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"

local M = {}

local function kind_of(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and rawget(meta, "__name") or nil
end

--- A column as a list; a tensor of one dimension counts as one.
local function list_of(value)
  if type(value) == "table" then return value end
  if type(value) == "userdata" and getmetatable(value) == "Tensor" then return value:tolist() end
end

--- A row per point of results: its options as they were asked for, its metrics, status and id.
local function of_points(results)
  return lists.map(results.points, function(point)
    local metrics = point.status == "ok" and point.metrics or {}
    return lists.merged(point.options, point.asked, metrics, { status = point.status, id = point.id })
  end)
end

--- A row per logged step of each point, with the point's options.
local function of_steps(results)
  local rows = {}
  for _, point in ipairs(results.points) do
    local steps = type(point.result) == "table" and point.result.steps
    for _, step in ipairs(type(steps) == "table" and steps or {}) do
      if type(step) == "table" then rows[#rows + 1] = lists.merged(point.options, point.asked, { id = point.id }, step) end
    end
  end
  return rows
end

--- Names of all columns, sorted.
function M.names(rows)
  local seen = {}
  for _, row in ipairs(rows) do
    for name in pairs(row) do seen[name] = true end
  end
  return lists.keys(seen)
end

local function of_results(results, wanted)
  local points = of_points(results)
  local known = lists.set(M.names(points))
  for _, name in ipairs(wanted) do
    -- What only steps have asks for steps: their number, a loss of each.
    if name == "step" or not known[name] then
      local steps = of_steps(results)
      if lists.contains(M.names(steps), name) then return steps end
    end
  end
  return points
end

local function of_columns(data, where, level)
  local rows, length, first = {}, nil, nil
  for _, name in ipairs(lists.keys(data)) do
    local column = list_of(data[name])
    if not column then
      error(("%s: column '%s': expected a list, got %s"):format(where, tostring(name), type(data[name])), level + 1)
    end
    if length and #column ~= length then
      error(("%s: expected columns of one length, got %d values of '%s' and %d of '%s'"):format(where, length, first, #column, name),
        level + 1)
    end
    length, first = #column, name
    for i = 1, length do
      rows[i] = rows[i] or {}
      rows[i][name] = column[i]
    end
  end
  return rows
end

local function of_list(data, where, level)
  return lists.map(data, function(item, i)
    if type(item) == "number" then return { x = i, y = item } end
    local is_row = type(item) == "table"
    for key in pairs(is_row and item or {}) do is_row = is_row and type(key) == "string" end
    if not is_row then
      error(("%s: row %d: expected a table { name = value } or a number, got %s"):format(where, i,
        type(item) == "table" and "a table with other keys than names" or type(item)), level + 3)
    end
    return item
  end)
end

--- Rows of data: a list of rows or of numbers (columns x and y), a table of columns, results (ms.load), or a Table of an analysis.
-- @tparam string where opens messages
-- @tparam {string,...} wanted names of columns that are asked for
-- @tparam number level of the caller, as for error()
function M.rows(data, where, wanted, level)
  data = list_of(data) or data
  if type(data) ~= "table" then
    error(("%s: expected data: a list of rows, a table of columns, results or a table of an analysis, got %s; write "
      .. "ms.plot { rows, x = \"step\", y = \"loss\" }"):format(where, data == nil and "nothing" or type(data)), level + 1)
  end
  if type(data.points) == "table" and kind_of(data) == "Runs" then return of_results(data, wanted) end
  if type(data.columns) == "table" and type(data.rows) == "table" then
    return lists.map(data.rows, function(row)
      local named = {}
      for c, column in ipairs(data.columns) do named[column] = row[c] end
      return named
    end)
  end
  if #data > 0 then return of_list(data, where, level) end
  return of_columns(data, where, level)
end

--- Raises unless all names are columns.
function M.check_names(rows, names, where, level)
  local known = M.names(rows)
  local is_known = lists.set(known)
  for _, name in ipairs(names) do
    if not is_known[name] then
      error(("%s: expected a column of the data, got '%s'%s known: %s"):format(where, tostring(name),
        guard.hint(tostring(name), known, ";"), #known > 0 and table.concat(known, ", ") or "none"), level + 1)
    end
  end
end

return M
