--- Fields and members of values, looked up without running anything of the user's: with rawget and through `__index` tables.
-- One exception is made for native objects: a field that the metatable lists in `__members` may be
-- read through a native `__index`, because such a getter is ours and only reports.
local lexer = require "moonshard.repl.lexer"
local lists = require "moonshard.lists"

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
-- @tparam[opt] function is_field of a native type's name and a member: whether that is a field
-- @treturn table set of names
function M.members(value, methods_only, is_field)
  local names = {}
  for _ = 1, MAX_INDEX_CHAIN do
    if type(value) == "table" then collect_table(names, value, methods_only) end
    local meta = metatable_of(value)
    if not meta then break end
    for _, name in ipairs(listed_members(meta)) do
      local is_wanted = not (methods_only and is_field and is_field(rawget(meta, "__metatable"), name))
      if type(name) == "string" and is_wanted then names[name] = true end
    end
    -- Native classes often keep their methods in the metatable itself.
    if type(value) == "userdata" then collect_table(names, meta, true) end
    value = rawget(meta, "__index")
    if type(value) ~= "table" then break end
  end
  return names
end

return M
