--- Quoting for a shell.
local M = {}

--- The text quoted for a shell, whatever it contains.
function M.quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- The same for lines that people read: only where it is needed.
function M.readable(word) return word:match("^[%w_./=:,*+-]+$") and word or M.quoted(word) end

return M
