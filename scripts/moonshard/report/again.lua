--- How to run a sweep again: the command it was started with, and a script of its grid, both from sweep.json.
local lists = require "moonshard.lists"
local plot_points = require "moonshard.plot_points"

local M = {}

--- A command line without what must not be passed on: values of --token.
function M.without_secrets(line)
  return (line:gsub("(%-%-[%w_-]*token)([= ])(%S+)", "%1%2…"))
end

local function is_name(text) return text:match("^[%a_][%w_]*$") ~= nil end

local function literal(value)
  if type(value) == "string" then return (("%q"):format(value):gsub("\\\n", "\\n")) end
  if type(value) == "number" then
    return value == math.floor(value) and math.abs(value) < 2 ^ 53 and ("%d"):format(value) or ("%.17g"):format(value)
  end
  if type(value) ~= "table" then return type(value) == "userdata" and "nil" or tostring(value) end
  if #value > 0 then return ("{ %s }"):format(table.concat(lists.map(value, literal), ", ")) end
  local parts = lists.map(lists.keys(value), function(key)
    return ("%s = %s"):format(is_name(tostring(key)) and key or ("[%s]"):format(literal(key)), literal(value[key]))
  end)
  return #parts > 0 and ("{ %s }"):format(table.concat(parts, ", ")) or "{}"
end

--- The sweep as a Lua script.
-- @tparam table sweep content of sweep.json
-- @treturn string; nil where it has no request
function M.script(sweep)
  local request = plot_points.list(plot_points.list(sweep).request)
  local shared, grid, zip = plot_points.list(request.shared), plot_points.list(request.grid), plot_points.list(request.zip)
  if next(shared) == nil and next(grid) == nil and next(zip) == nil then return nil end
  local lines = { 'local ms = require "moonshard"', "ms.sweep {" }
  local function add(key, value) lines[#lines + 1] = ("  %s = %s,"):format(key, literal(value)) end
  if type(sweep.name) == "string" and sweep.name ~= "" then add("name", sweep.name) end
  for _, key in ipairs(lists.keys(shared)) do
    if is_name(key) then add(key, shared[key]) end
  end
  for key, list in pairs { grid = grid, zip = zip } do
    if next(list) ~= nil then add(key, list) end
  end
  local baseline = plot_points.list(request.baseline)
  if type(baseline.axis) == "string" then add("baseline", { [baseline.axis] = baseline.value }) end
  lines[#lines + 1] = "}:run()"
  return table.concat(lines, "\n")
end

--- Number of combinations of the grid: more than there are points where the script's own `when` left some out.
function M.combinations(sweep)
  local request = plot_points.list(plot_points.list(sweep).request)
  local count = 1
  for _, values in pairs(plot_points.list(request.grid)) do count = count * math.max(1, #plot_points.list(values)) end
  local _, zipped = next(plot_points.list(request.zip))
  return count * math.max(1, #plot_points.list(zipped))
end

return M
