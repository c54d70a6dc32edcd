--- Completion candidates for a line of Lua that stops at the cursor.
-- Nothing of the user's runs here: names are looked up with rawget and through `__index` tables.
-- One exception is made for native objects: a field that the metatable lists in `__members` may be
-- read through a native `__index`, because such a getter is ours and only reports.
local lists = require "moonshard.lists"
local lexer = require "moonshard.repl.lexer"

local M = {}

local MAX_INDEX_CHAIN = 8

local function is_c_function(value)
  return type(value) == "function" and debug.getinfo(value, "S").what == "C"
end

local function metatable_of(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and meta or nil
end

local function listed_members(meta)
  local members = rawget(meta, "__members")
  return type(members) == "table" and members or {}
end

--- Look a field up without running user code.
-- @param value table, userdata or string
-- @return the field or nil
function M.field(value, key)
  for _ = 1, MAX_INDEX_CHAIN do
    if type(value) == "table" then
      local found = rawget(value, key)
      if found ~= nil then return found end
    end
    local meta = metatable_of(value)
    local index = meta and rawget(meta, "__index")
    if type(value) == "userdata" and is_c_function(index) and lists.contains(listed_members(meta), key) then
      local ok, found = pcall(index, value, key)
      return ok and found or nil
    end
    if type(index) ~= "table" then return nil end
    value = index
  end
  return nil
end

--- Follow a list of keys from an environment.
-- @tparam table path keys, e.g. `{ "ms", "optim" }`
-- @return the value or nil
function M.resolve(env, path)
  local value = env
  for _, key in ipairs(path) do
    value = M.field(value, key)
    if value == nil then return nil end
  end
  return value
end

local function collect_table(names, source, methods_only)
  for key, value in next, source do
    if type(key) == "string" and lexer.is_name(key) and key:sub(1, 2) ~= "__"
      and (not methods_only or type(value) == "function") then
      names[key] = true
    end
  end
end

--- Names that may stand after `value.` or `value:`.
-- @tparam boolean methods_only after a colon: only what can be called, as far as that is known
-- @treturn table set of names
function M.members(value, methods_only)
  local names = {}
  for _ = 1, MAX_INDEX_CHAIN do
    if type(value) == "table" then collect_table(names, value, methods_only) end
    local meta = metatable_of(value)
    if not meta then break end
    for _, name in ipairs(listed_members(meta)) do
      if type(name) == "string" then names[name] = true end
    end
    -- Native classes often keep their methods in the metatable itself.
    if type(value) == "userdata" then collect_table(names, meta, true) end
    value = rawget(meta, "__index")
    if type(value) ~= "table" then break end
  end
  return names
end

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

-- The call whose table argument the cursor is in: `f{ |`, `f(x, { |`, `f{ grid = { |`.
local function callee_path(tokens, stack)
  for level = #stack, 1, -1 do
    local at = stack[level]
    local before = tokens[at - 1]
    if tokens[at].text ~= "{" or not before then return nil end
    if before.kind == "name" or before.text == "]" then return path_ending_at(tokens, at - 1) end
    if before.text == "(" or before.text == "," then
      local paren = stack[level - 1]
      if paren and tokens[paren].text == "(" then return path_ending_at(tokens, paren - 1) end
      return nil
    end
    if before.text ~= "=" then return nil end
  end
end

-- Is this function one of ours? Options are only offered for calls into the module.
local function belongs_to(module, value)
  for _, member in next, module do
    if rawequal(member, value) then return true end
    if type(member) == "table" then
      for _, inner in next, member do
        if rawequal(inner, value) then return true end
      end
    end
  end
  return false
end

local function option_names(context, path)
  local module = context.module
  local ask = type(module) == "table" and M.field(module, "option_names")
  local callee = path and M.resolve(context.env, path)
  if not ask or callee == nil then return nil end
  local is_ours = rawequal(M.resolve(context.env, { path[1] }), module)
  if not is_ours and not belongs_to(module, callee) then return nil end
  -- By function, by name, or one list for all: whichever the module understands.
  for _, arguments in ipairs { { callee }, { table.concat(path, ".") }, {} } do
    local ok, list = pcall(ask, unpack(arguments))
    if ok and type(list) == "table" then return list end
  end
end

local function complete_option(tokens, prefix, context)
  local stack = open_brackets(tokens)
  local last = tokens[#tokens]
  local at_key = last.text == "{" or last.text == "," or last.text == ";"
  if #stack == 0 or not at_key then return nil end
  local list = option_names(context, callee_path(tokens, stack))
  if not list then return nil end
  local names = lists.set(lists.select(list, function(name) return type(name) == "string" end))
  for at = stack[#stack] + 1, #tokens - 1 do
    if tokens[at + 1].text == "=" then names[tokens[at].text] = nil end
  end
  return matching(names, prefix)
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

-- The cursor is inside a string: the name of something for help "...", a file name otherwise.
local function complete_string(tokens, text, context)
  local inside = text:sub(tokens[#tokens].content)
  local before = tokens[#tokens - 1]
  before = before and before.text == "(" and tokens[#tokens - 2] or before
  if before and before.text == "help" then return complete_dotted(inside, context) end
  return complete_path(inside, context), inside
end

-- "text": or ("text"): before the cursor, where the methods of strings are known.
local function ends_in_string(tokens, at)
  if tokens[at] and tokens[at].text == ")" then at = at - 1 end
  return tokens[at] ~= nil and tokens[at].kind == "string"
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
    if value == nil then return {}, prefix end
    return matching(M.members(value, last.text == ":"), prefix), prefix
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

--- Candidates for the word before the cursor.
-- @tparam string text everything before the cursor, earlier lines of the entry included
-- @tparam table context `env` (table), and where there are: `module`, `commands` (list of names),
--   `list_dir(path)` (names in a folder, folders with a slash at the end)
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
