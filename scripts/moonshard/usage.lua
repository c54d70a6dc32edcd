--- Mistakes in words that a person typed: they end in one line and exit code 2, not in a traceback.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"

local M = {}

local Mistake = {}
Mistake.__tostring = function(self) return self.text end

--- Raises a mistake; the text is formatted as by string.format.
function M.fail(...) error(setmetatable({ text = string.format(...), code = 2 }, Mistake), 0) end

--- Whether an error value is such a mistake.
function M.is_mistake(value) return getmetatable(value) == Mistake end

--- Raises "unknown …" with the nearest known name and all of them.
-- @tparam string where opens the message
-- @tparam string what e.g. "option '--seq-lenght'"
-- @tparam string name as typed, in the spelling of `known`
-- @tparam[opt] function show turns a known name into what is typed
function M.fail_unknown(where, what, name, known, show)
  show = show or tostring
  M.fail("%s: unknown %s%s known: %s", where, what, guard.hint(name, known, ";", show), table.concat(lists.map(known, show), ", "))
end

--- An error's text without the place in our own code that raised it.
function M.plain(message) return (tostring(message):gsub("^[^:\n]*%.lua:%d+: ", "")) end

--- Results of a function of the library. Its error ends the verb with exit code 1.
-- @tparam string opening pattern of what the error begins with
-- @tparam string verb what it shall begin with instead
function M.attempt(opening, verb, action, ...)
  local results = { pcall(action, ...) }
  if results[1] then return unpack(results, 2) end
  error(setmetatable({ text = M.plain(results[2]):gsub("^" .. opening, verb), code = 1 }, Mistake), 0)
end

return M
