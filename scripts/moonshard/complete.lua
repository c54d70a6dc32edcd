--- Completion candidates for a line of Lua that stops at the cursor.
-- Nothing of the user's runs here.
local lexer = require "moonshard.repl.lexer"
local lists = require "moonshard.lists"
local members = require "moonshard.repl.members"

local M = {}

--- Look-ups that run nothing, see moonshard.repl.members.
M.field, M.resolve, M.members = members.field, members.resolve, members.members

local function matching(names, prefix)
  return lists.select(lists.keys(names), function(name) return name:sub(1, #prefix) == prefix end)
end

local function literal_key(token)
  if token.kind == "number" then return tonumber(token.text) end
  if token.kind == "string" and not token.open then return token.text:match("^['\"](.*)['\"]$") end
end

-- The access path that ends at token `last`: `a.b["c"].d` gives { "a", "b", "c", "d" }, or nil when
-- it is not made of names and literals only (a call would have to run).
local function path_ending_at(tokens, last)
  local path, at = {}, last
  while at >= 1 do
    local token = tokens[at]
    if token.kind == "name" then
      table.insert(path, 1, token.text)
      local before = tokens[at - 1]
      if not before or (before.text ~= "." and before.text ~= ":") then return path end
      at = at - 2
    elseif token.text == "]" and tokens[at - 1] and tokens[at - 2]
      and tokens[at - 2].text == "[" then
      local key = literal_key(tokens[at - 1])
      if key == nil then return nil end
      table.insert(path, 1, key)
      at = at - 3
    else
      return nil
    end
  end
end

local CLOSER = { ["("] = ")", ["{"] = "}", ["["] = "]" }

-- Indices of the brackets that are still open after the last token, outermost first.
local function open_brackets(tokens)
  local stack = {}
  for index, token in ipairs(tokens) do
    if token.kind == "op" then
      if CLOSER[token.text] then
        stack[#stack + 1] = index
      elseif #stack > 0 and CLOSER[tokens[stack[#stack]].text] == token.text then
        stack[#stack] = nil
      end
    end
  end
  return stack
end

-- The call whose argument the cursor is in: `f{ |`, `f(x, { |`, `f{ grid = { |`, `f("|`.
-- @treturn number index of the token that what is called ends with; nil when it is no call
-- @treturn table names of the tables between, outermost first: { "grid" }
-- @treturn number which argument
local function call_around(tokens, stack)
  local keys = {}
  for level = #stack, 1, -1 do
    local at = stack[level]
    local before = tokens[at - 1]
    if not before then return nil end
    if tokens[at].text == "(" then
      local position, depth = 1, 0
      for index = at + 1, #tokens do
        local text = tokens[index].kind == "op" and tokens[index].text or ""
        depth = depth + (CLOSER[text] and 1 or (text == ")" or text == "}" or text == "]") and -1 or 0)
        if text == "," and depth == 0 then position = position + 1 end
      end
      return at - 1, keys, position
    end
    if tokens[at].text ~= "{" then return nil end
    if before.kind == "name" or before.text == "]" then return at - 1, keys, 1 end
    if before.text == "=" and tokens[at - 2] then table.insert(keys, 1, tokens[at - 2].text) end
    if not (before.text == "=" or before.text == "(" or before.text == "," or before.text == "{") then return nil end
  end
end

-- The module's function of that path and its documented name; nil for what is not ours.
local function our_function(context, path)
  local callee = path and M.resolve(context.env, path)
  local ask = type(context.module) == "table" and M.field(context.module, "doc_of")
  if type(callee) ~= "function" or type(ask) ~= "function" then return nil end
  local ok, doc = pcall(ask, callee)
  return ok and type(doc) == "table" and type(doc.name) == "string" and doc.name or nil
end

local OPENER = { [")"] = "(", ["}"] = "{", ["]"] = "[" }
local function_name

-- The type of what a call gives that ends at a token, as its signature says: `ms.sweep{ … }` is a Sweep.
local function type_of_call(tokens, last, context)
  if not context.result_of or not tokens[last] or not OPENER[tokens[last].text] then return nil end
  local depth, at = 0, last
  repeat
    local text = tokens[at].kind == "op" and tokens[at].text or ""
    depth = depth + (OPENER[text] and 1 or CLOSER[text] and -1 or 0)
    at = at - 1
  until depth == 0 or at < 1
  local name = depth == 0 and at >= 1 and function_name(context, tokens, at)
  return name and context.result_of(name) or nil
end

-- The documented name of the function that ends at a token: of a path, or a method of what a call of ours gives. Nothing runs.
function function_name(context, tokens, last)
  local path = path_ending_at(tokens, last)
  if path then return our_function(context, path) end
  local mark = tokens[last - 1]
  if not mark or mark.text ~= ":" or tokens[last].kind ~= "name" then return nil end
  local kind = type_of_call(tokens, last - 2, context)
  return kind and ("%s:%s"):format(kind, tokens[last].text) or nil
end

-- Tables inside an option table whose keys are options of an experiment.
local NESTED = lists.set { "grid", "zip", "baseline", "only" }

--- Options that may stand in a call's table.
-- @treturn table list of { name, choices, … }; nil where there are none
local function options_in(context, name, keys)
  local ask = name and M.field(context.module, "options_of")
  if type(ask) ~= "function" then return nil end
  local inner = keys[1]
  if inner and NESTED[inner] then name = "ms.run" end
  if inner and not NESTED[inner] then name = name .. "." .. inner end
  local ok, list = pcall(ask, name)
  return ok and type(list) == "table" and list or nil
end

local function complete_option(tokens, prefix, context)
  local stack = open_brackets(tokens)
  local last = tokens[#tokens]
  local at_key = last.text == "{" or last.text == "," or last.text == ";"
  if #stack == 0 or not at_key or tokens[stack[#stack]].text ~= "{" then return nil end
  local callee, keys = call_around(tokens, stack)
  -- `grid = { mode = { |`: a list of values.
  if not callee or #keys > 1 then return nil end
  local list = options_in(context, function_name(context, tokens, callee), keys)
  if not list then return nil end
  local names = lists.set(lists.column(list, "name"))
  for at = stack[#stack] + 1, #tokens - 1 do
    if tokens[at + 1].text == "=" then names[tokens[at].text] = nil end
  end
  return matching(names, prefix)
end

-- The option whose value the string at the end is: `mode = "|`, `grid = { mode = { "none", "|`.
local function option_of_string(tokens, context)
  local rest = {}
  for at = 1, #tokens - 1 do rest[at] = tokens[at] end
  local before = rest[#rest]
  if not before then return nil end
  -- ms.model "lla|: a call without parentheses.
  if before.kind == "name" or before.text == "]" then return nil, function_name(context, rest, #rest), 1 end
  local stack = open_brackets(rest)
  local callee, keys, position = call_around(rest, stack)
  local name = callee and function_name(context, rest, callee)
  if not name then return nil end
  local key
  if before.text == "=" and rest[#rest - 1] then
    key = rest[#rest - 1].text
  elseif #keys > 0 and rest[stack[#stack]].text == "{" then
    key = table.remove(keys)
  end
  if not key then return nil, name, position end
  for _, option in ipairs(options_in(context, name, keys) or {}) do
    if option.name == key then return option end
  end
end

-- Words that a string of a call into the module may be; nil when it may be anything.
local function string_values(tokens, context)
  local option, name, position = option_of_string(tokens, context)
  if option and option.choices then return option.choices end
  local ask = type(context.module) == "table" and M.field(context.module, "values_of")
  if type(ask) ~= "function" then return nil end
  local subject = option and option.name or name
  if not subject then return nil end
  local ok, list = pcall(ask, subject, position)
  return ok and type(list) == "table" and list or nil
end

local function complete_global(prefix, env)
  return matching(lists.merged(lists.set(lexer.keywords), M.members(env, false)), prefix)
end

local function complete_path(prefix, context)
  local folder, stem = prefix:match("^(.*/)([^/]*)$")
  folder, stem = folder or "", stem or prefix
  local ok, entries = pcall(context.list_dir, folder == "" and "." or folder)
  local names = {}
  for _, entry in ipairs(ok and type(entries) == "table" and entries or {}) do
    -- Hidden files only when asked for, as in a shell.
    if entry:sub(1, 1) ~= "." or stem:sub(1, 1) == "." then names[folder .. entry] = true end
  end
  return matching(names, prefix)
end

local function complete_dotted(text, context)
  local prefix = text:match("[^.:]*$")
  local parts = lists.matches(text:sub(1, #text - #prefix), "[^.:]+")
  if #parts == 0 then return complete_global(prefix, context.env), prefix end
  return matching(M.members(M.resolve(context.env, parts), text:find(":", 1, true) ~= nil), prefix),
    prefix
end

-- The cursor is inside a string: the name of something for help "...", a value that the call takes, else a file name.
local function complete_string(tokens, text, context)
  local inside = text:sub(tokens[#tokens].content)
  local before = tokens[#tokens - 1]
  before = before and before.text == "(" and tokens[#tokens - 2] or before
  if before and before.text == "help" then return complete_dotted(inside, context) end
  local values = string_values(tokens, context)
  local found = values and matching(lists.set(values), inside)
  -- A model or a tokenizer may also be a folder.
  if found and #found > 0 then return found, inside end
  return complete_path(inside, context), inside
end

-- "text": or ("text"): before the cursor, where the methods of strings are known.
local function ends_in_string(tokens, at)
  if tokens[at] and tokens[at].text == ")" then at = at - 1 end
  return tokens[at] ~= nil and tokens[at].kind == "string"
end

-- Fields are documented by name, methods by their function: "Tensor.shape".
local function field_test(context)
  local ask = type(context.module) == "table" and M.field(context.module, "doc_of")
  if type(ask) ~= "function" then return nil end
  return function(type_name, member)
    local ok, doc = pcall(ask, ("%s.%s"):format(tostring(type_name), member))
    return ok and doc ~= nil
  end
end

local function complete_code(text, context)
  local tokens = lexer.tokens(text)
  local last = tokens[#tokens]
  if last and last.open then
    if last.kind == "comment" then return {}, "" end
    return complete_string(tokens, text, context)
  end
  tokens = lexer.code_tokens(text)
  last = tokens[#tokens]
  local prefix = ""
  if last and last.last == #text and (last.kind == "name" or last.kind == "keyword") then
    prefix = last.text
    tokens[#tokens] = nil
    last = tokens[#tokens]
  end
  if last and (last.text == "." or last.text == ":") then
    if ends_in_string(tokens, #tokens - 1) then return matching(string, prefix), prefix end
    local path = path_ending_at(tokens, #tokens - 1)
    local value = path and M.resolve(context.env, path)
    if value == nil then
      local kind = not path and type_of_call(tokens, #tokens - 1, context)
      return kind and matching(context.members_of(kind, last.text == ":"), prefix) or {}, prefix
    end
    return matching(M.members(value, last.text == ":", field_test(context)), prefix), prefix
  end
  local options = last and complete_option(tokens, prefix, context)
  if options and #options > 0 then return options, prefix end
  return complete_global(prefix, context.env), prefix
end

-- Lines that are not Lua: `.save file`, `%time code`, `?name`.
local function complete_command(text, context)
  local word = text:match("^%s*([.%%][%a_]*)$")
  if word and context.commands then return matching(lists.set(context.commands), word), word end
  local file = text:match("^%s*%.save%s+(.*)$")
  if file then return complete_path(file, context), file end
  local code = text:match("^%s*%?(.*)$") or text:match("^%s*%%%a+%s+(.*)$")
  if code then return complete_code(code, context) end
end

--- What a text that stops at the cursor is about: the name it ends with, else the call it is in.
-- @treturn string dotted, as it was typed: "runs:plot"; nil where there is neither
function M.subject(text)
  local tokens = lexer.code_tokens(text)
  local last = tokens[#tokens]
  if not last then return nil end
  local from, to
  if last.kind == "name" and path_ending_at(tokens, #tokens) then
    to = #tokens
  else
    local stack = open_brackets(tokens)
    if not call_around(tokens, stack) then return nil end
    for level = #stack, 1, -1 do
      local before = tokens[stack[level] - 1]
      if before and before.kind == "name" then
        to = stack[level] - 1
        break
      end
    end
  end
  from = to
  while from and from > 2 and (tokens[from - 1].text == "." or tokens[from - 1].text == ":") do from = from - 2 end
  return to and text:sub(tokens[from].first, tokens[to].last) or nil
end

--- Candidates for the word before the cursor.
-- @tparam string text everything before the cursor, earlier lines of the entry included
-- @tparam table context `env` (table), and where there are: `module`, `commands` (list of names),
--   `list_dir(path)` (names in a folder, folders with a slash at the end), `result_of(function's name)` (the type that it gives) with
--   `members_of(type, methods_only)` (set of names)
-- @treturn table sorted list of whole words
-- @treturn string the part of the word that is already there
function M.candidates(text, context)
  local list, prefix = complete_command(text, context)
  if not list then list, prefix = complete_code(text, context) end
  return list, prefix
end

--- The longest common beginning of some words.
function M.common_prefix(words)
  local common = words[1] or ""
  for _, word in ipairs(words) do
    while word:sub(1, #common) ~= common do common = common:sub(1, -2) end
  end
  return common
end

--- Words in columns, read downwards.
-- @tparam number width of the terminal
-- @treturn string lines, without a line break at the end
function M.columns(words, width)
  local widest = 0
  for _, word in ipairs(words) do widest = math.max(widest, #word) end
  local columns = math.max(1, math.floor((width or 80) / (widest + 2)))
  local rows = math.ceil(#words / columns)
  local lines = {}
  for row = 1, rows do
    local cells = {}
    for at = row, #words, rows do
      cells[#cells + 1] = words[at] .. (" "):rep(widest + 2 - #words[at])
    end
    lines[row] = table.concat(cells):gsub("%s+$", "")
  end
  return table.concat(lines, "\n")
end

return M
