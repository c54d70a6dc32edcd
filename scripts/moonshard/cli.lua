--- Verbs of the program that are written in Lua, each in moonshard.cli.NAME: a table with
--   usage, about   the words behind the verb, and what it does
--   flags          as moonshard.arguments takes them; help and completion list them
--   positional     the flag that words without a flag belong to; `words`: those that completion offers
--   takes_files    completion offers files, too
--   notes          what help says below the flags
--   runs_script    words that are none of ours go to a script, as given.rest
--   run            function (given, words, owners) that may return an exit code; see arguments.parse
-- Mistakes in the words are the user's: they end in one line and exit code 2.
local arguments = require "moonshard.arguments"
local usage = require "moonshard.usage"

local M = {}

local function verb_of(name) return require("moonshard.cli." .. name) end

local function parse_and_run(name, words)
  local verb = verb_of(name)
  local rest = verb.runs_script and {} or nil
  local given, owners = arguments.parse(name, words, verb.flags, verb.positional, rest)
  given.rest = rest
  return verb.run(given, words, owners)
end

--- Runs a verb.
-- @tparam string ... the words behind it
-- @treturn number|nil exit code
function M.run(name, ...)
  local ok, result = pcall(parse_and_run, name, { ... })
  if ok then return result end
  if not usage.is_mistake(result) then error(result, 0) end
  io.stderr:write("moonshard: ", result.text, "\n")
  return result.code
end

--- What moonshard NAME --help prints.
function M.help(name)
  local verb = verb_of(name)
  local flags = arguments.describe(verb.flags)
  return ("usage: moonshard %s %s\n%s\n%s%s"):format(name, verb.usage, verb.about, flags ~= "" and flags .. "\n" or "",
    verb.notes and verb.notes .. "\n" or "")
end

return M
