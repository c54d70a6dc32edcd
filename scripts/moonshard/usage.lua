--- Mistakes in words that a person typed: they end in one line and exit code 2, not in a traceback.
local guard = require "moonshard.options_guard"

local M = {}

local Mistake = {}
Mistake.__tostring = function(self) return self.text end

--- Raises a mistake; the text is formatted as by string.format.
function M.fail(...) error(setmetatable({ text = string.format(...) }, Mistake), 0) end

--- Whether an error value is such a mistake.
function M.is_mistake(value) return getmetatable(value) == Mistake end

--- Raises "unknown …" with the nearest known name and all of them.
-- @tparam string where opens the message
-- @tparam string what e.g. "option '--seq-lenght'"
-- @tparam string name as typed, in the spelling of `known`
-- @tparam {string,...} known
-- @tparam[opt] function show turns a known name into what is typed
function M.fail_unknown(where, what, name, known, show)
  show = show or function(text) return text end
  local near = guard.nearest(name, known)
  local shown = {}
  for i, each in ipairs(known) do shown[i] = show(each) end
  M.fail("%s: unknown %s%s known: %s", where, what, near and ("; did you mean '%s'?"):format(show(near)) or ";",
    table.concat(shown, ", "))
end

--- An error's text without the place in our own code that raised it.
function M.plain(message) return (tostring(message):gsub("^[^:\n]*%.lua:%d+: ", "")) end

return M
