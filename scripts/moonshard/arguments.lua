--- Flags of scripts, in the spellings of the profiling suites: `--seq-lengths 512 1024`, `--batch_size=4`,
-- `--cpu_offload`, `--forward-prefetch=false`. Dashes and underscores are the same; a list ends at the next flag;
-- every experiment option is a flag too, by its name, its aliases and its plural.
local usage = require "moonshard.usage"

local M = {}

local function spelled(name) return "--" .. name:gsub("_", "-") end

--- A flag for one experiment option, with the type that its schema has.
local function flag_of_option(option)
  local kind, values = option.type, nil
  if kind == "true | false" then
    kind = "boolean"
  elseif kind:find("|", 1, true) then
    -- The schema knows more spellings (BACKWARD_PRE) than it lists; it checks the word itself.
    kind, values = "text", option.type
  end
  return { name = option.name, kind = kind, values = values, aliases = option.aliases, doc = option.doc, list = true, option = option.name }
end

--- Flags for all experiment options, to be given to parse() behind a script's own.
-- @tparam {table,...} options as ms.options() gives them
function M.option_flags(options)
  local flags = {}
  for i, option in ipairs(options) do flags[i] = flag_of_option(option) end
  return flags
end

--- Names under which flags are known; the first flag to claim a name keeps it.
local function index_of(flags)
  local by_name = {}
  local function claim(name, flag) by_name[name] = by_name[name] or flag end
  for _, flag in ipairs(flags) do
    claim(flag.name, flag)
    for _, alias in ipairs(flag.aliases or {}) do claim(alias, flag) end
  end
  for _, flag in ipairs(flags) do  -- plurals come last: no option is the plural of another
    if flag.list then
      claim(flag.name .. "s", flag)
      for _, alias in ipairs(flag.aliases or {}) do claim(alias .. "s", flag) end
    end
  end
  return by_name
end

local function typed(where, flag, text)
  if flag.kind == "boolean" then
    if text == "true" or text == "1" or text == "yes" then return true end
    if text == "false" or text == "0" or text == "no" then return false end
    usage.fail("%s: option '%s': expected true or false, got '%s'", where, spelled(flag.name), text)
  end
  if flag.kind == "int" or flag.kind == "number" then
    local number = tonumber(text)
    if not number or (flag.kind == "int" and number ~= math.floor(number)) then
      usage.fail("%s: option '%s': expected %s, got '%s'; %s", where, spelled(flag.name),
        flag.kind == "int" and "a whole number" or "a number", text, flag.doc)
    end
    return number
  end
  if flag.choices then
    for _, choice in ipairs(flag.choices) do
      if choice == text then return text end
    end
    usage.fail("%s: option '%s': expected %s, got '%s'", where, spelled(flag.name), table.concat(flag.choices, " | "), text)
  end
  return text
end

--- Words that follow a flag and belong to it; returns them and the index of the last.
local function words_of(where, flag, words, i)
  if flag.kind == "boolean" then
    local following = words[i + 1]
    if following == "true" or following == "false" then return { following }, i + 1 end
    return { "true" }, i
  end
  local taken = {}
  while words[i + 1] and words[i + 1]:sub(1, 2) ~= "--" and ((flag.list and not flag.commas) or #taken == 0) do
    i = i + 1
    taken[#taken + 1] = words[i]
  end
  if #taken == 0 then
    usage.fail("%s: option '%s': expected a value, got %s; %s", where, spelled(flag.name),
      words[i + 1] and "'" .. words[i + 1] .. "'" or "the end of the line", flag.doc)
  end
  return taken, i
end

--- Reads words into a table of values by flag name.
-- @tparam string where opens messages, e.g. "fsdp_llama3"
-- @tparam {string,...} words
-- @tparam {table,...} flags each { name, kind = text | int | number | boolean, list, commas, choices, aliases, doc }; a list
-- takes all words that follow, or with commas one word of several
-- @tparam[opt] string|table positional the flag that takes a word without a flag, by name or as one that only such words
-- give; a list takes all of them
-- @treturn table values by name: lists for flags that are lists
-- @raise a usage mistake, see moonshard.usage
function M.parse(where, words, flags, positional)
  local by_name, values, i = index_of(flags), {}, 1
  local free = type(positional) == "string" and by_name[positional] or positional
  while i <= #words do
    local name, given = words[i]:match("^%-%-([^=]+)=(.*)$")
    name = name or words[i]:match("^%-%-(.+)$") or (words[i] == "-h" and "help") or nil
    local flag, taken
    if name then
      flag = by_name[(name:gsub("-", "_"))]
      if not flag then
        local known = {}
        for _, each in ipairs(flags) do known[#known + 1] = each.name end
        usage.fail_unknown(where, ("option '--%s'"):format(name), (name:gsub("-", "_")), known, spelled)
      end
    elseif free and (free.list or values[free.name] == nil) then
      flag, taken = free, { words[i] }
    else
      usage.fail("%s: expected an option like --batch-size 4, got '%s'", where, words[i])
    end
    if not taken then
      if given then
        taken = { given }
      else
        taken, i = words_of(where, flag, words, i)
      end
      if flag.list and (given or flag.commas) then
        local whole = taken[1]
        taken = {}
        for part in whole:gmatch("[^,]+") do taken[#taken + 1] = part end
      end
    end
    for _, text in ipairs(taken) do
      local value = typed(where, flag, text)
      if flag.list then
        values[flag.name] = values[flag.name] or {}
        table.insert(values[flag.name], value)
      else
        values[flag.name] = value
      end
    end
    i = i + 1
  end
  return values
end

--- Help lines of flags: name, type, other spellings, meaning.
-- @tparam {table,...} flags
-- @treturn string
function M.describe(flags)
  local names, width = {}, 0
  for i, flag in ipairs(flags) do
    local shape = flag.kind == "boolean" and "" or flag.choices and " " .. table.concat(flag.choices, "|")
      or (" " .. (flag.kind == "int" and "N" or flag.kind == "number" and "X" or "TEXT") .. (flag.list and "…" or ""))
    names[i] = spelled(flag.name) .. shape
    width = math.max(width, math.min(#names[i], 34))
  end
  local lines = {}
  for i, flag in ipairs(flags) do
    local others = {}
    for _, alias in ipairs(flag.aliases or {}) do others[#others + 1] = spelled(alias) end
    local also = #others > 0 and " (also " .. table.concat(others, ", ") .. ")" or ""
    lines[i] = ("  %-" .. width .. "s  %s%s"):format(names[i], flag.doc, also)
  end
  return table.concat(lines, "\n")
end

return M
