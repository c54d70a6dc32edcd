--- The interactive session: reads entries, evaluates them, prints results and errors.
-- Everything but the terminal is here, so that it runs under a plain LuaJIT. The host (the C++
-- program, or a test) hands in what Lua cannot do by itself; see `new`.
-- Invariant: no error of an entry leaves a method; the session's values survive every entry.
local chunk_of = require "moonshard.repl.chunk"
local commands = require "moonshard.repl.commands"
local complete = require "moonshard.complete"
local figures = require "moonshard.repl.figures"
local help = require "moonshard.repl.help"
local pretty = require "moonshard.pretty"
local protocol = require "moonshard.repl.protocol"

local M = {}
local Session = {}
Session.__index = Session

local MAX_FRAMES = 20

local function pack(...) return { n = select("#", ...), ... } end

local function frame_text(info)
  local place = info.what == "C" and "[C]" or ("%s:%d"):format(info.short_src, info.currentline)
  if info.what == "main" then return place .. ": in main chunk" end
  if info.name and info.name ~= "" then return ("%s: in function '%s'"):format(place, info.name) end
  return ("%s: in function <%s:%d>"):format(place, info.short_src, info.linedefined)
end

--- Error handler's work: keeps the error value and the frames between it and the session. To be
-- called by the handler itself, whose frame is skipped.
-- @param value what was raised
-- @tparam function boundary the function that called the user's code; frames from it on are ours
-- @treturn table `{ value, frames }`
function M.error_info(value, boundary)
  local frames = {}
  for level = 3, math.huge do
    local info = debug.getinfo(level, "nSlf")
    if not info or info.func == boundary then break end
    -- Deep recursions show their newest frames; the message has the place already.
    if #frames == MAX_FRAMES then
      frames[#frames + 1] = "..."
      break
    end
    local is_ours = info.source:find("/scripts/moonshard/", 1, true) ~= nil
    if info.func ~= xpcall and info.func ~= error and not is_ours then frames[#frames + 1] = frame_text(info) end
  end
  return { value = value, frames = frames }
end

-- Stand-in for the host's call under a plain LuaJIT: the same contract, without Ctrl-C.
-- No tail calls here: frames are counted from the handler and end at this function.
local function plain_call(fn, ...)
  local arguments = pack(...)
  local results = pack(xpcall(function() return fn(unpack(arguments, 1, arguments.n)) end,
    function(value)
      local info = M.error_info(value, plain_call)
      return info
    end))
  return unpack(results, 1, results.n)
end

local DEFAULT_HOST = {
  call = plain_call,
  now = os.clock,
  width = function() return 80 end,
  list_dir = function() return {} end,
  ask_terminal = function() return nil end,
  is_terminal = function()
    local ok, native = pcall(require, "moonshard.native")
    return ok and native.launch.is_terminal()
  end,
  out = function(text) io.stdout:write(text) end,
  err = function(text)
    io.stdout:flush()  -- what was printed before the error is read before it
    io.stderr:write(text)
  end,
}

local function load_module(session)
  local ok, module = pcall(require, "moonshard")
  if ok and type(module) == "table" then
    session.module = module
    session.env.ms = module
  else
    session:fail("repl: the module 'moonshard' is not there, and so no ms: " .. tostring(module))
  end
end

--- Start a session.
-- @tparam[opt] table host what the program offers, each with a stand-in: `call(fn, ...)` (protected
--   and interruptible; true and results, or false, error info, interrupted), `now()` (wall clock in
--   seconds), `width()` (columns), `list_dir(path)`, `history(count)`, `is_terminal()`, `ask_terminal(query,
--   last)`, `out(text)`, `err(text)`
function M.new(host)
  local session = setmetatable({ good = {}, entries = {}, count = 0 }, Session)
  session.host = setmetatable(host or {}, { __index = DEFAULT_HOST })
  if not session.host.history then
    session.host.history = function(count)
      local list = session.entries
      return { unpack(list, math.max(1, #list - count + 1)) }
    end
  end
  -- An environment of its own keeps typed names out of the scripts' globals (which strict mode
  -- guards) while everything global stays readable.
  local env = setmetatable({}, { __index = _G })
  env._G = env
  env.help = function(...)
    if select("#", ...) == 0 then return session.host.out(help.general() .. "\n") end
    local value = ...
    local text = type(value) == "string" and help.on_name(session, value)
      or help.on_value(session, value)
    session.host.out(text .. "\n")
  end
  session.env = env
  load_module(session)
  return session
end

--- Compile an entry under the name of the current one.
-- @treturn table chunk, or nil, message, incomplete (see `moonshard.repl.chunk`)
function Session:compile(text)
  return chunk_of.compile(text, ("ms[%d]"):format(math.max(self.count, 1)), self.env)
end

--- Call user code so that errors and Ctrl-C come back as results.
-- @param ... its arguments
-- @treturn table packed results of the host's call
function Session:call(fn, ...) return pack(self.host.call(fn, ...)) end

--- Print a message of the session's own.
-- @treturn boolean false, for `return session:fail(...)`
function Session:fail(message)
  self.host.err(message .. "\n")
  return false
end

--- Print what an entry raised.
-- @param info error info of the host's call; a plain value when the handler itself failed
-- @tparam[opt] boolean interrupted whether Ctrl-C was the reason
-- @treturn boolean false, for `return session:show_error(...)`
function Session:show_error(info, interrupted)
  local value, frames = info, {}
  if type(info) == "table" and info.frames then value, frames = info.value, info.frames end
  local message = value
  if type(value) ~= "string" then
    local formatted = self:call(pretty.format, value, { width = self.host.width() })
    local is_plain = type(value) == "table" and not (debug.getmetatable(value) or {}).__tostring
    message = (is_plain and "error value: " or "") .. (formatted[1] and formatted[2] or type(value))
  end
  self.was_interrupted = interrupted or self.was_interrupted
  if interrupted then
    local told = message:match("interrupted after [^\n]*") -- by ms.run
    message = told or message:find("interrupted", 1, true) and "interrupted" or "interrupted: " .. message
  end
  self:fail(message)
  -- One frame is the entry itself, and the message has its line.
  if #frames > 1 then self:fail("stack traceback:\n  " .. table.concat(frames, "\n  ")) end
  return false
end

local function texts_of(values, options)
  local texts, separator = {}, "\t"
  for index = 2, values.n do
    -- format leaves its defaults on the options table, which is fine to share
    texts[#texts + 1] = pretty.format(values[index], options)
    if texts[#texts]:find("\n", 1, true) then separator = "\n" end
  end
  return table.concat(texts, separator)
end

local function only_nil(results)
  for index = 2, results.n do
    if results[index] ~= nil then return false end
  end
  return true
end

-- Printing runs the values' own __tostring, so it is protected like the entry itself.
function Session:echo(chunk, results)
  if results.n < 2 then return true end
  if (chunk.quiet or chunk.kind == "statement") and only_nil(results) then return true end
  self.env._ = results[2]
  local function name_of(fn) return (help.doc_of(self.module, fn) or {}).name end
  local options = { width = self.host.width(), name_of = name_of }
  local printed = self:call(texts_of, results, options)
  if not printed[1] then return self:show_error(printed[2], printed[3]) end
  self.host.out(printed[2] .. "\n")
  self.printed = results[2]
  for index = 2, results.n do figures.show(self, results[index]) end
  return true
end

--- After a chunk ran: print its values or its error and remember it when it was good.
-- @tparam table results packed results of `call`
-- @treturn boolean whether all was well
function Session:finish(chunk, results)
  if not results[1] then return self:show_error(results[2], results[3]) end
  self.good[#self.good + 1] = chunk
  return self:echo(chunk, results)
end

local function is_blank(text) return not text:find("%S") end

--- Whether an entry can be run as it is; false asks for another line.
function Session:is_complete(text)
  local command, argument = commands.find(text)
  if command == false then return true end
  if command and (not command.code or command.is_whole and command.is_whole(argument)) then return true end
  local code = command and argument or text
  if is_blank(code) then return true end
  local chunk, _, incomplete = self:compile(code)
  return chunk ~= nil or not incomplete
end

--- Run one entry: Lua, or a command.
-- @treturn boolean|string true, false after an error, "exit" when the user wants to leave
function Session:run(text)
  if is_blank(text) then return true end
  self.count = self.count + 1
  self.entries[#self.entries + 1] = text
  local command, argument = commands.find(text)
  if command then return command.run(self, argument) end
  if command == false then
    return self:fail(("repl: expected a command, got '%s'; known: %s"):format(
      argument, table.concat(commands.names(), ", ")))
  end
  local chunk, message = self:compile(text)
  if not chunk then return self:fail(message) end
  M.current = self  -- for what shows itself while it runs
  local results = self:call(chunk.fn)
  M.current = nil
  return self:finish(chunk, results)
end

--- Run the start-up file in the session's environment. A missing file is fine.
-- @treturn boolean false after an error, which was shown
function Session:run_file(path)
  local file = io.open(path, "rb")
  if not file then return true end
  local text = file:read("*a") or ""
  file:close()
  text = text:gsub("^#[^\n]*", "")
  local chunk, message = nil, ("%s: expected Lua source text, got byte code"):format(path)
  if text:sub(1, 1) ~= "\27" then chunk, message = load(text, "@" .. path, "t", self.env) end
  if not chunk then return self:fail("start-up file: " .. tostring(message)) end
  local results = self:call(chunk)
  if not results[1] then
    self:fail("start-up file:")
    return self:show_error(results[2], results[3])
  end
  return true
end

--- What completion looks at.
function Session:completion_context()
  local ok, reference = pcall(require, "moonshard.reference")
  return { env = self.env, module = self.module, commands = commands.names(), list_dir = self.host.list_dir,
    result_of = ok and reference.result_of or nil, members_of = ok and reference.members_of or nil }
end

--- What Tab does.
-- @tparam string text everything before the cursor
-- @treturn string text to insert
-- @treturn string lines to show, empty when there is nothing to choose from
function Session:complete(text)
  if not text:match("[^\n]*$"):find("%S") then return "  ", "" end
  local words, prefix = complete.candidates(text, self:completion_context())
  local insert = complete.common_prefix(words):sub(#prefix + 1)
  if #words < 2 or insert ~= "" then return insert, "" end
  return "", complete.columns(words, self.host.width())
end

for name, answer in pairs(protocol) do Session[name] = answer end

--- The two lines shown when a terminal session starts.
function Session:banner()
  local module = self.module or {}
  local version = complete.field(module, "version")
  local torch = complete.field(module, "libtorch_version")
  if type(version) == "table" then version, torch = version.moonshard, version.libtorch or torch end
  local parts = { jit.version }
  if torch then parts[#parts + 1] = "LibTorch " .. tostring(torch) end
  local name = type(version) == "string" and "moonshard " .. version or "moonshard"
  return ("%s (%s)\nhelp() for help, Ctrl-D to leave"):format(name, table.concat(parts, ", "))
end

return M
