--- Values as text for people: limited in depth, length and width, safe on cycles.
-- The array part comes first, then named fields in order, then other keys, so that the same table
-- always prints the same way. Values with `__tostring` (tensors, results) use it.
local lexer = require "moonshard.repl.lexer"

local M = {}

--- Limits, overridden field by field through the second argument of `format`.
M.defaults = {
  depth = 4,            -- levels of nested tables
  items = 40,           -- entries per table
  width = 80,           -- columns before a table is broken into lines
  string_length = 200,  -- bytes of one string
}

local INDENT = "  "
local ESCAPES = {
  ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\\"] = "\\\\", ['"'] = '\\"',
}

local function escape(char) return ESCAPES[char] or ("\\%03d"):format(char:byte()) end

--- A string as a Lua literal, cut at the limit.
-- @tparam[opt] number limit bytes kept
function M.quote(text, limit)
  limit = limit or M.defaults.string_length
  local kept = text
  if #text > limit then
    -- Never cut inside a UTF-8 sequence: continuation bytes at the cut belong to the dropped part.
    local stop = limit
    while stop > 0 and (text:byte(stop + 1) or 0) >= 0x80 and text:byte(stop + 1) < 0xC0 do
      stop = stop - 1
    end
    kept = text:sub(1, stop)
  end
  return '"' .. kept:gsub('[%c\\"\127]', escape) .. '"' .. (#kept < #text and ("... (%d bytes)"):format(#text) or "")
end

--- "1.50 GiB", "12.1 MiB"; differences have a sign.
function M.size(bytes)
  if math.abs(bytes) >= 2 ^ 30 then return ("%.2f GiB"):format(bytes / 2 ^ 30) end
  return ("%.1f MiB"):format(bytes / 2 ^ 20)
end

local names_of_functions

-- Functions of loaded modules by name; built once, because the walk is long and only a hint.
local function known_functions()
  if names_of_functions then return names_of_functions end
  names_of_functions = setmetatable({}, { __mode = "k" })
  for _, library in ipairs { "_G", "string", "table", "math", "io", "os", "coroutine", "debug", "package", "bit", "jit", "ffi" } do
    local prefix = library == "_G" and "" or library .. "."
    for key, value in next, package.loaded[library] or {} do
      if type(key) == "string" and type(value) == "function" and not names_of_functions[value] then
        names_of_functions[value] = prefix .. key
      end
    end
  end
  return names_of_functions
end

local function function_text(fn, options)
  local name = options.name_of and options.name_of(fn) or known_functions()[fn]
  if name then return "function: " .. name end
  local info = debug.getinfo(fn, "S")
  if info.what == "C" then return tostring(fn) end
  return ("function: %s:%d"):format(info.short_src, info.linedefined)
end

local function has_tostring(value)
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and rawget(meta, "__tostring") ~= nil
end

local function own_text(value, nested)
  local ok, text = pcall(tostring, value)
  if not ok then return "<error in __tostring: " .. tostring(text) .. ">" end
  text = type(text) == "string" and text or "<" .. type(value) .. ">"
  local first = text:match("^(.-)\n")
  if nested and first then return first .. " ..." end
  return text
end

local function key_order(a, b)
  local type_a, type_b = type(a), type(b)
  if type_a ~= type_b then
    if type_a == "string" then return true end
    if type_b == "string" then return false end
    return type_a < type_b
  end
  if type_a == "string" or type_a == "number" then return a < b end
  return tostring(a) < tostring(b)
end

local function key_text(key, options)
  if type(key) == "string" then
    return lexer.is_name(key) and key or "[" .. M.quote(key, options.string_length) .. "]"
  end
  if type(key) == "table" then return "[table]" end
  return "[" .. own_text(key, true) .. "]"
end

-- Keys outside the array part 1..length, in printing order. NaN cannot be a key, so `<` is safe.
local function other_keys(value, length)
  local keys = {}
  for key in next, value do
    local in_array = type(key) == "number" and key >= 1 and key <= length and key % 1 == 0
    if not in_array then keys[#keys + 1] = key end
  end
  table.sort(keys, key_order)
  return keys
end

local function array_length(value)
  local length = 0
  while rawget(value, length + 1) ~= nil do length = length + 1 end
  return length
end

local write

local function table_items(value, state, depth)
  local options, items = state.options, {}
  local length = array_length(value)
  local keys = other_keys(value, length)
  for index = 1, math.min(length, options.items) do
    items[#items + 1] = write(rawget(value, index), state, depth + 1)
  end
  for _, key in ipairs(keys) do
    if #items >= options.items then break end
    local text = write(rawget(value, key), state, depth + 1)
    items[#items + 1] = key_text(key, options) .. " = " .. text
  end
  local left = length + #keys - #items
  if left > 0 then items[#items + 1] = ("... %d more"):format(left) end
  return items
end

local function lay_out(items, width, depth)
  local line = "{ " .. table.concat(items, ", ") .. " }"
  local room = width - #INDENT * depth
  if #line <= room and not line:find("\n", 1, true) then return line end
  local inner, outer = INDENT:rep(depth + 1), INDENT:rep(depth)
  return "{\n" .. inner .. table.concat(items, ",\n" .. inner) .. "\n" .. outer .. "}"
end

-- Short items (numbers of a long list) are packed into lines instead of one per line.
local function pack_short(items, width, depth)
  local room = width - #INDENT * (depth + 1)
  local lines, line = {}, ""
  for index, item in ipairs(items) do
    if #item > 12 or item:find("\n", 1, true) then
      if index < #items then return items end
    end
    local piece = line == "" and item or line .. ", " .. item
    if #piece > room and line ~= "" then
      lines[#lines + 1] = line
      line = item
    else
      line = piece
    end
  end
  lines[#lines + 1] = line
  return lines
end

local function table_text(value, state, depth)
  local options = state.options
  if state.open[value] then return "<cycle>" end
  if next(value) == nil then return "{}" end
  if depth >= options.depth then return "{ ... }" end
  state.open[value] = true
  local items = table_items(value, state, depth)
  state.open[value] = nil
  if array_length(value) > 8 then items = pack_short(items, options.width, depth) end
  return lay_out(items, options.width, depth)
end

function write(value, state, depth)
  local kind = type(value)
  if kind == "string" then return M.quote(value, state.options.string_length) end
  if kind == "function" then return function_text(value, state.options) end
  if kind == "table" and not has_tostring(value) then return table_text(value, state, depth) end
  return own_text(value, depth > 0)
end

--- Text of a value.
-- @tparam[opt] table options `depth`, `items`, `width`, `string_length` (see `defaults`) and
--   `name_of`, a function from a function to its name or nil
-- @usage print(pretty.format({ 1, 2, name = "x" }))  --> { 1, 2, name = "x" }
function M.format(value, options)
  options = setmetatable(options or {}, { __index = M.defaults })
  return write(value, { options = options, open = {} }, 0)
end

return M
