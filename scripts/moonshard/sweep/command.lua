--- The verb "sweep": its own flags, then the script with all other words.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
local shell = require "moonshard.shell"
local sweep = require "moonshard.sweep"
local usage = require "moonshard.usage"

local M = {}

--- Flags of the verb: how each takes its value. Everything else belongs to the script.
local flags = {
  set = "pair", only = "pair", resume = "list", out = "text", ["dry-run"] = "switch", retry = "number", timeout = "number",
  ["fail-fast"] = "switch", all = "switch", shuffle = "seed", launcher = "text", ["slurm-args"] = "text", ["no-lock"] = "switch",
  ["retry-oom"] = "switch", ["drain-timeout"] = "number",
}
local flag_order = { "set", "only", "resume", "out", "dry-run", "retry", "timeout", "fail-fast", "all", "shuffle", "launcher",
  "slurm-args", "no-lock", "retry-oom", "drain-timeout" }

local function module_table() return package.loaded["moonshard"] end

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

local function is_option(key)
  for _, option in ipairs(module_table().options()) do
    if option.name == key then return true end
    for _, alias in ipairs(option.aliases) do
      if alias == key then return true end
    end
  end
  return false
end

local function add_pair(pairs_by_key, flag, text)
  local key, value = text:match("^([^=]+)=(.*)$")
  if not key then usage.fail("sweep: option '--%s': expected KEY=VALUE, got '%s'", flag, text) end
  key = key:gsub("-", "_")
  if not is_option(key) then
    usage.fail_unknown(("sweep: option '--%s'"):format(flag), ("option '%s'"):format(key), key, module_table().option_names())
  end
  pairs_by_key[key] = value
end

local function unknown(name)
  usage.fail_unknown("sweep", ("option '--%s'"):format(name), name, flag_order, function(known) return "--" .. known end)
end

--- Words into the verb's flags, the script's name, the script's words, and the line to go on with.
local function parse(words)
  local found = { set = {}, only = {} }
  local script, rest, again, i = nil, {}, {}, 1
  local function value_of(name, given)
    if given then return given end
    i = i + 1
    if words[i] == nil then usage.fail("sweep: option '--%s': expected a value, got the end of the line", name) end
    return words[i]
  end
  while i <= #words do
    local first, word = i, words[i]
    local name, given = word:match("^%-%-([^=]+)=(.*)$")
    name = name or word:match("^%-%-(.+)$")
    local kind = name and flags[name]
    if word == "--" then
      for j = i + 1, #words do rest[#rest + 1] = words[j] end
      i = #words
    elseif kind == "switch" then
      if given then usage.fail("sweep: option '--%s': expected no value, got '%s'", name, given) end
      found[name] = true
    elseif kind == "seed" then
      found[name] = true
      local seed = given or (words[i + 1] or ""):match("^%d+$")
      if seed then
        if not seed:match("^%d+$") or #seed > 15 then usage.fail("sweep: option '--shuffle': expected a whole number, got '%s'", seed) end
        found[name] = tonumber(seed)
        if not given then i = i + 1 end
      end
    elseif kind == "pair" then
      add_pair(found[name], name, value_of(name, given))
    elseif kind == "list" then
      found[name] = found[name] or {}
      table.insert(found[name], value_of(name, given))
    elseif kind then
      local text = value_of(name, given)
      found[name] = kind == "text" and text or tonumber(text)
        or usage.fail("sweep: option '--%s': expected a number, got '%s'", name, text)
    elseif script == nil and name then
      unknown(name)
    elseif script == nil then
      script = word
    else
      rest[#rest + 1] = word
    end
    if name ~= "resume" and name ~= "dry-run" then
      for j = first, math.min(i, #words) do again[#again + 1] = words[j] end
    end
    i = i + 1
  end
  return found, script, rest, again
end

local function find_script(name)
  if native.launch.exists(name) and name:match("%.lua$") then return name end
  local path = ("%s/scripts/studies/%s.lua"):format(native.launch.shared_files(), name)
  if native.launch.exists(path) then return path end
  local names = {}
  local listing = io.popen(("ls %s 2>/dev/null"):format(shell.quoted(native.launch.shared_files() .. "/scripts/studies")), "r")
  for file in listing:lines() do names[#names + 1] = file:match("^(.*)%.lua$") end
  listing:close()
  local near = guard.nearest(name, names)
  usage.fail("sweep: expected a script, got '%s'%s; give a path that ends in .lua or one of %s", name,
    near and ("; did you mean '%s'?"):format(near) or "", table.concat(names, ", "))
end

--- A script that never looks at its words would pass over a misspelt flag.
local function check_script_words(path, rest)
  if #rest == 0 then return end
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a"):gsub("%-%-[^\n]*", "")
  file:close()
  if text:find("...", 1, true) or text:find("%f[%w_]arg%f[^%w_]") then return end
  local name = rest[1]:match("^%-%-([^=]+)")
  if name then unknown(name) end
  usage.fail("sweep: expected no more words, got '%s'; %s takes none", rest[1], path)
end

--- moonshard sweep NAME|FILE.lua [flags] [flags of the script]
function M.run(...)
  local found, script, rest, again = parse { ... }
  if not script then usage.fail("sweep: expected a script, got nothing; moonshard sweep --help") end
  local overrides = sweep.overrides
  for key, value in pairs(found.set) do overrides.set[key] = typed(value) end
  overrides.only, overrides.resume, overrides.out = found.only, found.resume, found.out
  overrides.run = { dry_run = found["dry-run"], retry = found.retry, timeout = found.timeout, fail_fast = found["fail-fast"],
    all = found.all, shuffle = found.shuffle, launcher = found.launcher, slurm_args = found["slurm-args"],
    retry_oom = found["retry-oom"], drain_timeout = found["drain-timeout"] }
  if found["no-lock"] then overrides.run.lock = false end
  for i, word in ipairs(again) do again[i] = shell.readable(word) end
  overrides.again = "moonshard sweep " .. table.concat(again, " ")
  local path = find_script(script)
  check_script_words(path, rest)
  local chunk, reason = loadfile(path)
  if not chunk then usage.fail("%s", reason) end
  local code = chunk(unpack(rest))
  if type(code) == "number" and code ~= 0 then return code end
  return sweep.some_failed and 5 or 0
end

return M
