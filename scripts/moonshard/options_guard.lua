--- Checks option tables of the Lua library the way the native schema checks its own:
-- an unknown key is an error with the nearest name, raised at the caller's line.
local native = require "moonshard.native"

local M = {}

--- The candidate nearest to a name, or nil when none is near.
M.nearest = native.nearest

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
  local copy, is_known = {}, {}
  for _, name in ipairs(known) do is_known[name] = true end
  for key, value in pairs(options) do
    if not is_known[key] then
      local shown = tostring(key)
      if #shown > 60 then shown = shown:sub(1, 57) .. "..." end
      local near = type(key) == "string" and M.nearest(shown, known)
      error(("%s: unknown option '%s'%s known: %s"):format(where, shown,
        near and ("; did you mean '%s'?"):format(near) or ";", table.concat(known, ", ")), level)
    end
    copy[key] = value
  end
  return copy
end

return M
