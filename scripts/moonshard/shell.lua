--- Other programs and their files: quoting for a shell, output by way of a log.
local native = require "moonshard.native"

local M = {}

--- The text quoted for a shell, whatever it contains.
function M.quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- The same for lines that people read: only where it is needed.
function M.readable(word) return word:match("^[%w_./=:,*+-]+$") and word or M.quoted(word) end

--- The content of a file; nil where it cannot be read.
function M.read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

--- The first line that a shell's command prints; nil where it prints none.
function M.first_line(command)
  local pipe = io.popen(command)
  local line = pipe:read("*l")
  pipe:close()
  return line
end

--- Variables of each of so many processes side by side: with the usual number of threads all of them would take all cores.
function M.thread_variables(processes)
  if os.getenv "OMP_NUM_THREADS" then return {} end
  local cores = tonumber(M.first_line "nproc") or 1
  return { OMP_NUM_THREADS = tostring(math.max(1, math.floor(cores / processes))) }
end

--- Runs a program, its output in a log that is made anew.
-- @tparam[opt] table options as native.launch.run takes them
-- @treturn string what it printed
-- @treturn boolean whether it succeeded
-- @treturn string how it ended
function M.run(words, log, options)
  os.remove(log)
  local ended = native.launch.run(words, log, nil, options)
  return M.read(log) or "", ended.exit_code == 0 and ended.signal == 0 and ended.ended_by == "itself", ended.text
end

--- The last line of what a program printed, or how it ended.
function M.last_words(said, ended) return said:match("([^\n]+)%s*$") or ended end

return M
