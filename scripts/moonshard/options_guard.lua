--- Checks option tables of the Lua library the way the native schema checks its own:
-- an unknown key is an error with the nearest name, raised at the caller's line.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

--- "; did you mean 'x'?" of the candidate nearest to a name; where none is near, `otherwise` or nothing.
-- @tparam[opt] function show turns a candidate into what is typed
function M.hint(name, known, otherwise, show)
  local near = native.nearest(name, known)
  return near and ("; did you mean '%s'?"):format(show and show(near) or near) or otherwise or ""
end

--- Raises unless every key of the table is known.
-- @tparam string where opens the message, e.g. "runs:overhead"
-- @tparam table options what the caller gave; nil counts as empty
-- @tparam {string,...} known names
-- @tparam number level of the caller, as for error()
-- @treturn table a copy of the options
function M.check(where, options, known, level)
  level = (level or 1) + 1
  if options == nil then return {} end
  if type(options) ~= "table" then
    error(("%s: expected a table of options, got %s"):format(where, type(options)), level)
  end
  local is_known = lists.set(known)
  for key in pairs(options) do
    if not is_known[key] then
      local shown = tostring(key)
      if #shown > 60 then shown = shown:sub(1, 57) .. "..." end
      error(("%s: unknown option '%s'%s known: %s"):format(where, shown,
        type(key) == "string" and M.hint(shown, known, ";") or ";", table.concat(known, ", ")), level)
    end
  end
  return lists.merged(options)
end

return M
