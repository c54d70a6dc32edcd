--- Shared by the Lua specs: temporary folders, child processes, a small JSON reader.
-- A crash of the code under test must be a failed case, so whatever may crash runs in a child.
local M = {}

local function shell_quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end
M.shell_quoted = shell_quoted

--- The first line that a shell command prints.
local function first_line(command)
  local pipe = assert(io.popen(command, "r"))
  local line = pipe:read("*l")
  pipe:close()
  return line or ""
end
M.first_line = first_line

--- Absolute path of the program; MOONSHARD_PROGRAM says where it is when it is not build/bin.
function M.program()
  local path = os.getenv("MOONSHARD_PROGRAM") or "build/bin/moonshard"
  return first_line("readlink -f " .. shell_quoted(path))
end

--- Absolute path of the source tree, found from this file.
function M.root()
  local here = debug.getinfo(1, "S").source:sub(2)
  return first_line("readlink -f " .. shell_quoted(here:match("^(.*)tests/support/support%.lua$") .. "."))
end

--- Folder of moonshard.so, from the path that this process loads it by.
function M.module_pattern()
  local found = package.searchpath("moonshard", package.cpath)
  assert(found, "moonshard.so is not on package.cpath; give busted --cpath='build/lib/?.so'")
  return (first_line("readlink -f " .. shell_quoted(found)):gsub("moonshard%.so$", "?.so"))
end

--- A new empty folder; removed by M.remove.
function M.temporary_folder() return first_line("mktemp -d /tmp/moonshard_spec.XXXXXX") end

--- The same in memory, where there is such a place: for small files by the thousand, each of which is synced.
function M.memory_folder()
  return first_line("mktemp -d /dev/shm/moonshard_spec.XXXXXX 2>/dev/null || mktemp -d /tmp/moonshard_spec.XXXXXX")
end

function M.remove(folder)
  assert(folder:match("^/tmp/moonshard_spec%.") or folder:match("^/dev/shm/moonshard_spec%."), folder)
  os.execute("rm -rf " .. shell_quoted(folder))
end

function M.read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

function M.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

function M.exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- Names in a folder, sorted.
function M.list(folder)
  local names = {}
  local pipe = assert(io.popen("ls -A " .. shell_quoted(folder) .. " 2>/dev/null", "r"))
  for name in pipe:lines() do names[#names + 1] = name end
  pipe:close()
  return names
end

--- Runs a shell command.
-- @tparam string command
-- @tparam[opt] table options folder to start in, environment as a table, seconds at most (60), limit_kb of address space
-- @treturn table code (128 + n when signal n ended it), out, err
function M.run(command, options)
  options = options or {}
  local folder = M.temporary_folder()
  local script = { "cd " .. shell_quoted(options.folder or ".") .. " || exit 99" }
  for name, value in pairs(options.environment or {}) do script[#script + 1] = ("export %s=%s"):format(name, shell_quoted(value)) end
  -- The address sanitizer takes its time, and reserves terabytes of addresses; it has a limit of its own, for one piece.
  local sanitized = os.getenv "ASAN_OPTIONS"
  local seconds = (options.seconds or 60) * (sanitized and 4 or 1)
  if options.limit_kb then
    script[#script + 1] = sanitized
      and "export ASAN_OPTIONS=" .. shell_quoted(sanitized .. ":max_allocation_size_mb=" .. options.limit_kb / 2048)
      or "ulimit -v " .. options.limit_kb
  end
  script[#script + 1] = command
  M.write(folder .. "/script", table.concat(script, "\n") .. "\n")
  os.execute(("{ timeout -s KILL %d bash %s/script; } >%s/out 2>%s/err </dev/null; echo $? >%s/code"):format(
    seconds, folder, folder, folder, folder))
  local result = { code = tonumber((M.read(folder .. "/code"))), out = M.read(folder .. "/out"), err = M.read(folder .. "/err") }
  M.remove(folder)
  return result
end

--- The program with these words on its command line.
function M.run_program(words, options) return M.run(("exec %s %s"):format(M.shell_quoted(M.program()), words), options) end

--- Runs Lua source in a plain luajit that can require moonshard.
function M.run_lua(source, options)
  options = options or {}
  local folder = M.temporary_folder()
  M.write(folder .. "/chunk.lua", source)
  options.environment = options.environment or {}
  options.environment.LUA_CPATH = M.module_pattern() .. ";;"
  local result = M.run("exec luajit " .. folder .. "/chunk.lua", options)
  M.remove(folder)
  return result
end

--- Ids of the processes whose command line contains a text.
function M.processes_with(text)
  local ids = {}
  local pipe = assert(io.popen("grep -alsF -- " .. shell_quoted(text) .. " /proc/[0-9]*/cmdline 2>/dev/null", "r"))
  for path in pipe:lines() do
    local id = path:match("/proc/(%d+)/")
    local words = M.read(path)
    -- grep and the shell that started it have the text on their own command lines; by now grep's may be empty
    local is_other = words and words:find(text, 1, true) and not words:find("grep -alsF", 1, true) and not words:find("^grep%z")
    if is_other then ids[#ids + 1] = tonumber(id) end
  end
  pipe:close()
  return ids
end

--- Sends a signal to the processes of `program` with two texts on their command lines: to launchers, not to the guards
-- of their ranks, which are their children with the same words. All parents are read before anything is sent: a guard
-- whose launcher has ended has another one.
function M.signal_launchers(signal, program, text, other_text)
  local parents, outermost = {}, {}
  for _, id in ipairs(M.processes_with(text)) do
    local words = M.read("/proc/" .. id .. "/cmdline") or ""
    if words:find(other_text, 1, true) and words:sub(1, #program) == program then
      parents[id] = tonumber((M.read("/proc/" .. id .. "/stat") or ""):match("%) %a (%d+)")) or 0
    end
  end
  for id, parent in pairs(parents) do
    if not parents[parent] then outermost[#outermost + 1] = id end
  end
  for _, id in ipairs(outermost) do os.execute(("kill -%s %d"):format(signal, id)) end
end

--- Names of tensors that differ in any bit between two folders of .safetensors.
function M.different_tensors(a, b)
  local weights = require("moonshard").weights
  local names = {}
  for _, file in ipairs(M.list(a)) do
    if file:find "%.safetensors$" then
      local one, other = weights.open(a .. "/" .. file), weights.open(b .. "/" .. file)
      for _, name in ipairs(one:names()) do
        if (one:tensor(name) - other:tensor(name)):abs():max():item() ~= 0 then names[#names + 1] = name end
      end
      one:close()
      other:close()
    end
  end
  return names
end

--- The error that a call must raise.
function M.message_of(call, ...)
  local ok, message = pcall(call, ...)
  assert(not ok, "expected an error, got none")
  return message
end

--- Waits until a condition holds; returns whether it came true in time.
function M.wait_for(condition, seconds)
  for _ = 1, seconds * 20 do
    if condition() then return true end
    os.execute("sleep 0.05")
  end
  return condition()
end

local escapes = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

--- JSON text as tables; null is M.null. Raises where the text is not JSON.
function M.parse_json(text)
  local at = 1
  local function fail(what) error(("not JSON at byte %d: expected %s, got '%s'"):format(at, what, text:sub(at, at + 20)), 0) end
  local function skip() at = text:find("[^ \t\r\n]", at) or #text + 1 end
  local function take(word)
    if text:sub(at, at + #word - 1) ~= word then fail("'" .. word .. "'") end
    at = at + #word
  end
  local value
  local function read_string()
    take('"')
    local parts = {}
    while true do
      local stop = text:find('["\\%c]', at) or fail("the end of a string")
      parts[#parts + 1] = text:sub(at, stop - 1)
      local letter = text:sub(stop, stop)
      at = stop + 1
      if letter == '"' then return table.concat(parts) end
      if letter ~= "\\" then fail("an escaped control character") end
      local escaped = text:sub(at, at)
      if escaped == "u" then
        parts[#parts + 1] = "\\u" .. (text:match("^%x%x%x%x", at + 1) or fail("four hex digits"))
        at = at + 5
      else
        parts[#parts + 1] = escapes[escaped] or fail("an escape")
        at = at + 1
      end
    end
  end
  local function read_list()
    take "["
    local list = {}
    skip()
    if text:sub(at, at) == "]" then at = at + 1 return list end
    while true do
      list[#list + 1] = value()
      skip()
      if text:sub(at, at) == "]" then at = at + 1 return list end
      take ","
    end
  end
  local function read_object()
    take "{"
    local object = {}
    skip()
    if text:sub(at, at) == "}" then at = at + 1 return object end
    while true do
      skip()
      local key = read_string()
      skip()
      take ":"
      object[key] = value()
      skip()
      if text:sub(at, at) == "}" then at = at + 1 return object end
      take ","
    end
  end
  function value()
    skip()
    local first = text:sub(at, at)
    if first == "{" then return read_object() end
    if first == "[" then return read_list() end
    if first == '"' then return read_string() end
    for word, meaning in pairs { ["true"] = true, ["false"] = false, null = M.null } do
      if text:sub(at, at + #word - 1) == word then at = at + #word return meaning end
    end
    local number = text:match("^-?%d+%.?%d*[eE]?[+-]?%d*", at) or fail("a value")
    at = at + #number
    return tonumber(number) or fail("a number")
  end
  local result = value()
  skip()
  if at <= #text then fail("the end") end
  return result
end

M.null = setmetatable({}, { __tostring = function() return "null" end })

--- Sorted keys of a table, for comparing sets of names.
function M.keys(object)
  local names = {}
  for key in pairs(object) do names[#names + 1] = tostring(key) end
  table.sort(names)
  return names
end

--- Runs a script on so many ranks; what rank 0 printed. Any rank's error fails the case with its text.
function M.on_ranks(folder, ranks, text, seconds)
  M.write(folder .. "/script.lua", "local ms = require 'moonshard'\n" .. text .. "\n")
  local command = ("%s run --nproc %d --log-dir %s/logs script.lua"):format(M.shell_quoted(M.program()), ranks, folder)
  local result = M.run(command, { folder = folder, seconds = seconds })
  if result.code ~= 0 then error(("exit code %d: %s%s"):format(result.code, result.out, result.err), 0) end
  return result.out
end

return M
