--- Words for a shell.
local M = {}

--- The word as a shell reads it back, whatever is in it.
function M.quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- The same for lines that people read: only where it is needed.
function M.readable(word) return word:match("^[%w_./=:,*+-]+$") and word or M.quoted(word) end

return M
