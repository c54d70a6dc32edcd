--- moonshard sweep: its own flags, then a script with all other words.
local arguments = require "moonshard.arguments"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local points_of = require "moonshard.sweep.points"
local shell = require "moonshard.shell"
local sweep = require "moonshard.sweep"
local usage = require "moonshard.usage"

local flags = {
  { name = "set", kind = "pair", doc = "an experiment option for all points; replaces an axis" },
  { name = "only", kind = "pair", value = "KEY=GLOB", doc = "only points that match, e.g. mode=flash*" },
  { name = "resume", kind = "text", repeats = true, value = "DIR",
    doc = "go on with a run folder: what is missing or failed runs, the rest stands" },
  { name = "retry_oom", kind = "boolean", doc = "with --resume: also points that ran out of memory" },
  { name = "out", kind = "text", value = "DIR", doc = "folder for the run folder (results)" },
  { name = "dry_run", kind = "boolean", doc = "list the points, with their state when resuming" },
  { name = "retry", kind = "number", value = "N", doc = "run a failed point up to N times more" },
  { name = "timeout", kind = "number", value = "S", doc = "end a point after S seconds; its status is timeout" },
  { name = "budget", kind = "number", value = "S", doc = "begin no point that may not end within S seconds; --resume goes on" },
  -- Scripts have a flag --parallel of their own: the wrapper.
  { name = "workers", kind = "int", value = "N", doc = "N points side by side; their times disturb each other" },
  { name = "fail_fast", kind = "boolean", doc = "stop at the first failed point" },
  { name = "all", kind = "boolean", doc = "also points larger than one that ran out of memory" },
  { name = "shuffle", kind = "int", optional = true, value = "SEED", doc = "in another order, against drift" },
  { name = "no_lock", kind = "boolean", doc = "do not wait for other sweeps on the same GPU" },
  { name = "drain_timeout", kind = "number", value = "S", doc = "how long to wait until a GPU's memory is free again (30)" },
  { name = "launcher", kind = "text", value = "slurm", doc = "as a Slurm job array instead of on this machine" },
  { name = "slurm_args", kind = "text", raw = true, value = "\"...\"", doc = "more words for sbatch" },
}

--- "64" as a number, "true" as a boolean, all else as text.
local function typed(text)
  if text == "true" then return true end
  if text == "false" then return false end
  local number = tonumber(text)
  if number and text:match("^%-?[1-9]%d+$") and ("%.0f"):format(number) ~= text then
    usage.fail("sweep: option '--set': expected a whole number up to 2^53, got %s; a Lua number would lose digits", text)
  end
  return number or text
end

local function check_options(flag, values)
  local own_names = points_of.own_names()
  for key in pairs(values) do
    if not own_names[key] then
      usage.fail_unknown(("sweep: option '--%s'"):format(flag), ("option '%s'"):format(key), key,
        package.loaded["moonshard"].option_names())
    end
  end
end

local function find_script(name)
  if native.launch.exists(name) and name:match("%.lua$") then return name end
  local folder = native.launch.shared_files() .. "/scripts/studies"
  local path = ("%s/%s.lua"):format(folder, name)
  if native.launch.exists(path) then return path end
  local names = {}
  for _, file in ipairs(native.files.list(folder)) do names[#names + 1] = file:match("^(.*)%.lua$") end
  usage.fail("sweep: expected a script, got '%s'%s; give a path that ends in .lua or one of %s", name, guard.hint(name, names),
    table.concat(names, ", "))
end

--- A script that never looks at its words would pass over a misspelt flag.
local function check_script_words(path, rest)
  if #rest == 0 then return end
  local text = assert(shell.read(path)):gsub("%-%-[^\n]*", "")
  if text:find("...", 1, true) or text:find("%f[%w_]arg%f[^%w_]") then return end
  local name = rest[1]:match("^%-%-([^=]+)")
  if name then arguments.fail_unknown("sweep", name, flags) end
  usage.fail("sweep: expected no more words, got '%s'; %s takes none", rest[1], path)
end

--- The line that goes on with this sweep, but for --resume.
local function line_to_go_on(words, owners)
  local line = { "moonshard", "sweep" }
  for _, owner in ipairs(owners) do
    local name = owner.flag and owner.flag.name
    if name ~= "resume" and name ~= "dry_run" then
      for i = owner.first, owner.last do line[#line + 1] = shell.readable(words[i]) end
    end
  end
  return table.concat(line, " ")
end

--- What the command line asks of every sweep of the script; see moonshard.sweep.
local function request_of(given, words, owners)
  local request = { set = {}, only = given.only or {}, resume = given.resume, out = given.out, run = {},
    again = line_to_go_on(words, owners) }
  for key, value in pairs(given.set or {}) do request.set[key] = typed(value) end
  check_options("set", request.set)
  check_options("only", request.only)
  for _, name in ipairs(sweep.run_options) do
    if name ~= "only" and name ~= "resume" then request.run[name] = given[name] end
  end
  request.run.parallel = given.workers
  if given.no_lock then request.run.lock = false end
  return request
end

local function run(given, words, owners)
  if not given.script then usage.fail("sweep: expected a script, got nothing; moonshard sweep --help") end
  local request = request_of(given, words, owners)
  local path = find_script(given.script)
  check_script_words(path, given.rest)
  request.words = lists.extend({ path }, given.rest)
  local chunk, reason = loadfile(path)
  if not chunk then usage.fail("%s", reason) end
  -- For this script ms.sweep knows the request; what it was before comes back.
  local ms = package.loaded["moonshard"]
  local before = ms.sweep
  ms.sweep = sweep.maker(request)
  local ok, code = pcall(chunk, unpack(given.rest))
  ms.sweep = before
  if not ok then error(code, 0) end
  if type(code) == "number" and code ~= 0 then return code end
end

return {
  usage = "NAME|FILE.lua [flags] [flags of the script]",
  about = "Runs a sweep script: a path, or a name from scripts/studies. One process per point; every result is on disk at once.",
  flags = flags,
  positional = { name = "script", kind = "text" },
  runs_script = true,
  takes_files = true,
  notes = "Ctrl-C stops after the current point; twice ends it now. Flags of the script: NAME --help.\n"
    .. "Exit code 5 when points failed, 130 after Ctrl-C.",
  run = run,
}
