--- Commands of the prompt that are not Lua: `%time`, `%jit`, `.save`, `?x` and the like.
-- A command is `{ usage, text, run(session, argument) }`; `code = true` says that the argument is
-- Lua and may span several lines. `run` returns false after an error, "exit" to leave.
local chunk_of = require "moonshard.repl.chunk"
local figures = require "moonshard.repl.figures"
local help = require "moonshard.repl.help"
local lists = require "moonshard.lists"
local measure = require "moonshard.repl.measure"

local M = {}
local commands = {}

--- A command whose argument is Lua; `work` takes the session and the compiled chunk, and returns the line to print, or nil
-- after an error.
local function on_code(usage, text, work)
  return { usage = usage, text = text, code = true, run = function(session, argument)
    if argument == "" then
      return session:fail(usage .. ": expected an expression or a statement, got nothing; add one")
    end
    local chunk, message = session:compile(argument)
    if not chunk then session:fail(message) end
    local line = chunk and work(session, chunk, argument)
    if line then session.host.out(line .. "\n") end
    return line ~= nil
  end }
end

commands["%time"] = on_code("%time EXPR", "run once and print the wall time", function(session, chunk)
  local start = session.host.now()
  local results = session:call(chunk.fn)
  local spent = session.host.now() - start
  return session:finish(chunk, results) and ("time: %.3f ms"):format(spent * 1e3) or nil
end)

commands["%timeit"] = on_code("%timeit EXPR", "run for about a second: median and quartiles", function(session, chunk)
  local results = session:call(measure.repeat_timing, chunk.fn, session.host.now)
  if not results[1] then return session:show_error(results[2], results[3]) or nil end
  local timing = results[2]
  return ("median %s, IQR %s (%s to %s), %d samples of %d runs"):format(
    measure.duration(timing.median), measure.duration(timing.q3 - timing.q1),
    measure.duration(timing.q1), measure.duration(timing.q3), timing.samples, timing.runs)
end)

commands["%mem"] = on_code("%mem EXPR", "run once and print what it left in memory", function(session, chunk)
  local before = measure.memory(session.module)
  local results = session:call(chunk.fn)
  local after = measure.memory(session.module)
  return session:finish(chunk, results) and measure.memory_change(before, after) or nil
end)

commands["%jit"] = {
  usage = "%jit on|off|status", text = "the JIT compiler; off at the start, so that Ctrl-C works",
  run = function(session, argument)
    if argument == "on" then
      jit.on()
      session.host.out("JIT on: loops run faster, but Ctrl-C cannot stop a compiled loop "
        .. "(three presses end the program)\n")
    elseif argument == "off" then
      jit.off()
      jit.flush()
      session.host.out("JIT off: Ctrl-C stops any Lua loop\n")
    elseif argument == "status" or argument == "" then
      session.host.out("JIT " .. (jit.status() and "on" or "off") .. "\n")
    else
      return session:fail(("%%jit: expected on, off or status, got '%s'"):format(argument))
    end
    return true
  end,
}

-- Entries as one script. A line that starts with a parenthesis would continue the one before it.
local function script_of(session)
  local lines = { "-- Saved by the moonshard prompt.", 'local ms = require "moonshard"', "" }
  for _, chunk in ipairs(session.good) do
    -- help is the prompt's own.
    local text = chunk.source:match("^%s*help%s*[%(\"']") and "-- " .. chunk.source:gsub("\n", "\n-- ") or chunk_of.as_script(chunk)
    if text:match("^%s*%(") then lines[#lines] = lines[#lines] .. (#lines > 3 and "\n;" or "") end
    lines[#lines + 1] = text
  end
  return table.concat(lines, "\n") .. "\n"
end

commands[".save"] = {
  usage = ".save FILE", text = "write the entries that worked as a Lua script",
  run = function(session, argument)
    local path = argument:match("^['\"](.*)['\"]$") or argument
    if path == "" then
      return session:fail(".save: expected a file name, got nothing; write .save session.lua")
    end
    local script = script_of(session)
    local compiles, problem = load(script, "=" .. path, "t")
    local file, reason = io.open(path, "w")
    if not file then
      return session:fail((".save: cannot write '%s' (%s); choose another file"):format(path, reason))
    end
    file:write(script)
    file:close()
    session.host.out(("%d entries written to %s\n"):format(#session.good, path))
    return compiles and true or session:fail(".save: the script needs a look before it runs: " .. tostring(problem))
  end,
}

commands[".open"] = {
  usage = ".open [FILE]", text = "open the last figure, or a PNG or SVG file, in a window",
  run = function(session, argument)
    local path = argument:match("^['\"](.*)['\"]$") or argument
    if path == "" then path = session.last_picture end
    if not path then return session:fail(".open: expected a figure, got none yet; draw one: runs:plot \"time_comparison\"") end
    local ok, native = pcall(require, "moonshard.native")
    local opened, text = figures.open(path, ok and native.launch or nil)
    if not opened then return session:fail(".open: " .. text) end
    session.host.out("opened: " .. text .. "\n")
    return true
  end,
}

commands[".history"] = {
  usage = ".history [N]", text = "the last N entries (20)",
  run = function(session, argument)
    local count = argument == "" and 20 or tonumber(argument)
    if not count or count < 1 then
      return session:fail((".history: expected a count of 1 or more, got '%s'"):format(argument))
    end
    for _, entry in ipairs(session.host.history(math.floor(count))) do
      session.host.out("  " .. entry:gsub("\n", "\n  .. ") .. "\n")
    end
    return true
  end,
}

commands[".help"] = {
  usage = ".help", text = "this list",
  run = function(session)
    session.host.out(help.general() .. "\n\n")
    for _, name in ipairs(M.names()) do
      session.host.out(("  %-20s %s\n"):format(commands[name].usage, commands[name].text))
    end
    return true
  end,
}

commands[".exit"] = {
  usage = ".exit", text = "leave (also Ctrl-D)",
  run = function() return "exit" end,
}

local value_help = on_code("?NAME", "help", function(session, chunk, argument)
  local results = session:call(chunk.fn)
  if not results[1] then return session:show_error(results[2], results[3]) or nil end
  return help.on_value(session, results[2], argument)
end)

-- ?x: a dotted name is looked up, anything else is evaluated.
local question = {
  usage = "?NAME", text = "help", code = true,
  is_whole = function(argument) return argument == "" or argument:match("^[%a_][%w_.:]*$") ~= nil end,
  run = function(session, argument)
    if argument == "" then
      session.host.out(help.general() .. "\n")
      return true
    end
    if argument:match("^[%a_][%w_.:]*$") then
      local text, known = help.on_name(session, argument)
      session.host[known and "out" or "err"](text .. "\n")
      return known
    end
    return value_help.run(session, argument)
  end,
}

--- Names of all commands, sorted.
function M.names() return lists.keys(commands) end

--- Find the command that an entry calls.
-- @tparam string text the entry
-- @treturn ?table command; nil when the entry is Lua
-- @treturn ?string its argument, or the unknown command's name when the command is false
function M.find(text)
  local asked = text:match("^%s*%?%s*(.-)%s*$")
  -- "x?" is no Lua either: a question mark stands in strings and comments only.
  asked = asked or text:match("^%s*([%a_][%w_.:]*)%?%s*$")
  if asked then return question, asked end
  -- ".5" is a number; no Lua entry starts with a dot and a letter, or with a percent sign.
  local name, argument = text:match("^%s*([.%%][%a_]+)%s*(.-)%s*$")
  if not name then return nil end
  if not commands[name] then return false, name end
  return commands[name], argument
end

return M
