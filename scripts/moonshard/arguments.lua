--- The parser of flags for verbs and scripts, in the spellings of the profiling suites: `--seq-lengths 512 1024`,
-- `--batch_size=4`, `--cpu_offload`, `--forward-prefetch=false`. Dashes and underscores are the same.
--
-- A flag is a table:
--   name, doc    as in values and in help
--   kind         text | int | number | boolean | pair (KEY=VALUE; the value is a table by key)
--   aliases      other names; a list is also known by its plural
--   list         takes all words up to the next flag; `commas`: one word, cut at commas
--   repeats      a list of one word each time the flag is given
--   optional     the value, a number, may be left out: true
--   raw          the value may look like a flag
--   choices      the words that are allowed
--   value        what help calls the value
--   hidden       not in help
local lists = require "moonshard.lists"
local usage = require "moonshard.usage"

local M = {}

local function spelled(name) return "--" .. name:gsub("_", "-") end

--- A flag for one experiment option, with the type that its schema has.
local function flag_of_option(option)
  local kind, values = option.type, nil
  if kind == "true | false" then
    kind = "boolean"
  elseif kind:find("|", 1, true) then
    -- The schema knows more spellings (BACKWARD_PRE) than it lists; it checks the value itself.
    kind, values = "text", option.type
  end
  return { name = option.name, kind = kind, values = values, aliases = option.aliases, doc = option.doc, list = true, option = option.name }
end

--- Flags for all experiment options, to be given to parse() behind a script's own.
-- @tparam {table,...} options as ms.options() gives them
function M.option_flags(options) return lists.map(options, flag_of_option) end

--- Flags by all names under which they are known; the first flag to claim a name keeps it.
local function index_of(flags)
  local by_name = {}
  local function claim(flag, ending)
    for _, name in ipairs(lists.extend({ flag.name }, flag.aliases or {})) do
      by_name[name .. ending] = by_name[name .. ending] or flag
    end
  end
  for _, flag in ipairs(flags) do claim(flag, "") end
  for _, flag in ipairs(flags) do  -- plurals come last: no option is the plural of another
    if flag.list then claim(flag, "s") end
  end
  return by_name
end

local function refuse(where, flag, expected, text)
  local about = flag.doc and (flag.kind == "int" or flag.kind == "number") and "; " .. flag.doc or ""
  usage.fail("%s: option '%s': expected %s, got '%s'%s", where, spelled(flag.name), expected, text, about)
end

local function typed(where, flag, text)
  if flag.kind == "boolean" then
    if text == "true" or text == "1" or text == "yes" then return true end
    if text == "false" or text == "0" or text == "no" then return false end
    refuse(where, flag, "true or false", text)
  end
  if flag.kind == "int" or flag.kind == "number" then
    local number = tonumber(text)
    if flag.kind == "number" and not number then refuse(where, flag, "a number", text) end
    if flag.kind == "int" and (not number or number ~= math.floor(number)) then refuse(where, flag, "a whole number", text) end
    if flag.kind == "int" and math.abs(number) >= 2 ^ 53 then
      usage.fail("%s: option '%s': expected a whole number, got '%s'; from 2^53 on it would lose digits", where, spelled(flag.name), text)
    end
    return number
  end
  if lists.contains(flag.choices or { text }, text) then return text end
  refuse(where, flag, table.concat(flag.choices, " | "), text)
end

local function fail_several(where, flag, one, two)
  usage.fail("%s: option '%s': expected one value, got %s and %s", where, spelled(flag.name), tostring(one), tostring(two))
end

--- Puts the text of one value where it belongs.
local function store(where, values, flag, text)
  if flag.kind == "pair" then
    local key, value = text:match("^([^=]+)=(.*)$")
    if not key then refuse(where, flag, flag.value or "KEY=VALUE", text) end
    values[flag.name] = values[flag.name] or {}
    values[flag.name][(key:gsub("-", "_"))] = value
  elseif flag.list or flag.repeats then
    values[flag.name] = values[flag.name] or {}
    table.insert(values[flag.name], typed(where, flag, text))
  else
    local value, before = typed(where, flag, text), values[flag.name]
    if before ~= nil and before ~= value then fail_several(where, flag, before, value) end
    values[flag.name] = value
  end
end

--- Words that follow a flag and belong to it; returns them and the index of the last.
local function words_of(where, flag, words, i)
  local following = words[i + 1]
  if flag.kind == "boolean" then
    if following == "true" or following == "false" then return { following }, i + 1 end
    return { "true" }, i
  end
  if flag.optional and not (following and tonumber(following)) then return {}, i end
  local taken, takes_all = {}, flag.list and not flag.commas
  while words[i + 1] and (flag.raw or words[i + 1]:sub(1, 2) ~= "--") and (takes_all or #taken == 0) do
    i = i + 1
    taken[#taken + 1] = words[i]
  end
  if #taken == 0 then
    usage.fail("%s: option '%s': expected a value, got %s; %s", where, spelled(flag.name),
      words[i + 1] and "'" .. words[i + 1] .. "'" or "the end of the line", flag.doc)
  end
  return taken, i
end

--- Those of help and hints: of two with one name the first, which keeps it.
local function shown_flags(flags)
  local by_name = index_of(flags)
  return lists.select(flags, function(flag) return not flag.hidden and by_name[flag.name] == flag end)
end

--- Raises that there is no such flag.
function M.fail_unknown(where, name, flags)
  usage.fail_unknown(where, ("option '--%s'"):format(name), (name:gsub("-", "_")), lists.column(shown_flags(flags), "name"), spelled)
end

--- Reads words into a table of values by flag name.
-- @tparam string where opens messages, e.g. "fsdp_llama3"
-- @tparam[opt] string|table positional the flag that takes a word without a flag, by name or as one that only such words
-- give; a list takes all of them
-- @tparam[opt] {string,...} rest where a script is run: takes all words behind the positional one that belong to no flag,
-- and all behind "--"
-- @treturn table values by name: lists for flags that are lists
-- @treturn {table,...} which words were whose: { flag, first, last }, the flag nil for those in rest
-- @raise a usage mistake, see moonshard.usage
function M.parse(where, words, flags, positional, rest)
  local by_name, values, owners, i = index_of(flags), {}, {}, 1
  local free = type(positional) == "string" and by_name[positional] or positional
  while i <= #words do
    local first, name, given = i, words[i]:match("^%-%-([^=]+)=(.*)$")
    name = name or words[i]:match("^%-%-(.+)$") or (words[i] == "-h" and "help") or nil
    local flag = name and by_name[(name:gsub("-", "_"))]
    local is_behind = rest and values[free.name] ~= nil
    if rest and words[i] == "--" then
      lists.extend(rest, { unpack(words, i + 1) })
      i = #words
    elseif flag then
      local taken
      if given then
        taken = { given }
      else
        taken, i = words_of(where, flag, words, i)
      end
      if #taken == 1 and flag.list and (given or flag.commas) then taken = lists.matches(taken[1], "[^,]+") end
      if flag.optional and #taken == 0 then values[flag.name] = true end
      for _, text in ipairs(taken) do store(where, values, flag, text) end
    elseif is_behind then
      rest[#rest + 1] = words[i]
    elseif name then
      M.fail_unknown(where, name, flags)
    elseif free and (free.list or values[free.name] == nil) then
      flag = free
      store(where, values, free, words[i])
    else
      local before = owners[#owners] and owners[#owners].flag
      if before and before ~= free and before.kind ~= "boolean" then fail_several(where, before, words[i - 1], words[i]) end
      usage.fail("%s: expected %s, got '%s'", where,
        by_name.batch_size and "an option like --batch-size 4" or "no more words", words[i])
    end
    owners[#owners + 1] = { flag = flag, first = first, last = i }
    i = i + 1
  end
  return values, owners
end

--- The flag and the shape of its value, as help shows them.
local function shape_of(flag)
  if flag.kind == "boolean" then return spelled(flag.name) end
  local value = flag.value or flag.choices and table.concat(flag.choices, "|")
  if not value then
    value = flag.kind == "int" and "N" or flag.kind == "number" and "X" or flag.kind == "pair" and "KEY=VALUE" or "TEXT"
  end
  if flag.list and not flag.value then value = value .. "..." end
  return spelled(flag.name) .. " " .. (flag.optional and "[" .. value .. "]" or value)
end

--- Help lines of flags: name, type, other spellings, meaning.
function M.describe(flags)
  local shown, width = shown_flags(flags), 0
  for _, flag in ipairs(shown) do width = math.max(width, math.min(#shape_of(flag), 40)) end
  return table.concat(lists.map(shown, function(flag)
    local others = table.concat(lists.map(flag.aliases or {}, spelled), ", ")
    return ("  %-" .. width .. "s  %s%s"):format(shape_of(flag), flag.doc, others ~= "" and " (also " .. others .. ")" or "")
  end), "\n")
end

return M
