--- scripts/meta/moonshard.lua: annotations for lua-language-server, from signatures and descriptors. Types of parameters and results follow
-- from their names in the signatures; a name that is not listed here is an error, so that none is left without a type.
local lists = require "moonshard.lists"
local reference = require "moonshard.reference"

local options_of = reference.options

local parameters = {
  ["model or trainer"] = "Model|Trainer", dataset = "Dataset|table[]",
  numbers = "number|table", sizes = "integer|integer[]", n = "integer", seed = "integer", other = "Tensor|number", dim = "integer",
  position = "integer", ["dtype or device"] = "string", text = "string", ids = "integer[]", token = "string", examples = "integer[]",
  batch = "table<string, Tensor>", glob = "string", folder = "string", file = "string", steps = "integer", path = "string", name = "string",
  value = "any", signature = "string", engine = "string", trainer = "Trainer", runs = "Runs", x = "number[]", y = "number[]",
  fn = "function", kind = "string", reduction = '"sum"|"mean"|"max"|"min"', root = "integer", ['"bytes" | path'] = '"bytes"|string',
  ["function or name"] = "function|string", ["folder or folders"] = "string|string[]",
  status = "string", ["status or function"] = "string|fun(point: table): boolean",
  step = "number", reason = "string", options = "table", ["…"] = "string",
  metric = "string", before = "string", after = "string",
  place = "integer", which = '"points"|"overhead"|"phases"|"memory"', format = '"text"|"md"|"latex"|"csv"|"json"',
}
-- Names in Lua for those that are no names.
local spelled = { ["dtype or device"] = "format", ['"bytes" | path'] = "name", ["function or name"] = "of",
  ["status or function"] = "filter", ["folder or folders"] = "folder", ["model or trainer"] = "subject", ["…"] = "..." }

local tables = { paths = "string|string[]", tensors = "table<string, Tensor>", metadata = "table<string, string>" }

local results = {
  number = "number", text = "string", table = "table", list = "table[]", path = "string", ids = "integer[]",
  batch = "table<string, Tensor>",
  ["id or nil"] = "integer?", step = "integer?", count = "integer", ["list of files"] = "string[]", ["list of paths"] = "string[]",
  point = "table?", ["text or nil"] = "string?",
  ["columns, rows"] = { "string[]", "table[]" }, ["text, markdown"] = { "string", "string" }, result = "table", value = "any",
  ["what fn returns"] = "any", report = "table", ["table of bytes"] = "table<string, integer>", ["list or nil"] = "table[]?",
}

local kinds = { integer = "integer", number = "number", boolean = "boolean", text = "string", texts = "string[]", table = "table",
  ["function"] = "function", value = "any" }

--- The arguments of "(a, b[, c])" or "{ a, b }", split at commas outside brackets.
local function split(inside)
  local list, depth, from = {}, 0, 1
  for at = 1, #inside + 1 do
    local char = inside:sub(at, at)
    if char:find("[%({]") then depth = depth + 1 end
    if char:find("[%)}]") then depth = depth - 1 end
    if (char == "," or at > #inside) and depth == 0 then
      list[#list + 1] = inside:sub(from, at - 1):match("^%s*(.-)%s*$")
      from = at + 1
    end
  end
  return lists.select(list, function(each) return each ~= "" end)
end

local function class_of(name) return "moonshard." .. name:gsub("^ms%.", ""):gsub("[:.]", "_") .. "_options" end

local function result_type(entry)
  local word = entry.signature:match("%->%s*(.-)%s*$")
  if not word then return nil end
  if results[word] or word:find("^%a+$") and entry.types[word] then return results[word] or word end
  if word:find("^{") then return word:find("} or nil$") and "table?" or "table" end
  if word:find("^list of") then return "table[]" end
  error(("reference.meta: no type for the result '%s' of %s; add it to `results`"):format(word, entry.name), 0)
end

--- Parameters of a signature: { name, type, optional }.
local function parameter_list(entry)
  local call = entry.signature:sub(#entry.name + 1):gsub("%s*%->.*$", ""):match("^%s*(.-)%s*$")
  if call:find("^{") then return { { "options", options_of.of(entry.name) and class_of(entry.name) or "table", false } } end
  local inside = call:match("^%((.*)%)$") or ""
  local list, optional = {}, false
  for _, raw in ipairs(split(inside)) do
    local text = raw
    if text:find("^%[") then
      optional, text = true, text:match("^%[(.-)%]?$")
    end
    -- "ids[, { … }]" leaves its bracket on the argument before.
    local opens = text:find("%[$") ~= nil
    text = text:gsub("%[$", ""):gsub("%]$", ""):match("^%s*(.-)%s*$")
    local name, kind
    if text:find("{", 1, true) then
      name = text:find("folder or file", 1, true) and "paths" or text:find("name = Tensor", 1, true) and "tensors"
        or text:find("metadata", 1, true) and "metadata" or "options"
      kind = tables[name] or options_of.of(entry.name) and class_of(entry.name) or "table"
      if text:find("or false", 1, true) then kind = kind .. "|false" end
      if text:find("^name or") or text:find("^metric or") then kind = kind .. "|string" end
    else
      kind = parameters[text]
        or error(("reference.meta: no type for the parameter '%s' of %s; add it to `parameters`"):format(text, entry.name), 0)
      name = spelled[text] or text
    end
    local is_last_table = name == "options" or name == "metadata"
    list[#list + 1] = { name, kind, optional or is_last_table and not kind:find("|false", 1, true) or name == "seed" }
    optional = optional or opens
  end
  return list
end

local function doc_lines(text) return lists.map(lists.matches(text .. "\n", "([^\n]*)\n"), function(line) return "---" .. line end) end

local function option_type(option)
  if option.choices then
    local words = lists.map(option.choices, function(word) return ('"%s"'):format(word) end)
    if lists.contains(option.choices, "yes") and lists.contains(option.choices, "no") then words[#words + 1] = "boolean" end
    return table.concat(words, "|")
  end
  return kinds[option.kind] or option.kind
end

local function option_class(name, list)
  local parent = options_of.of_experiment[name] and name ~= "ms.run" and ": " .. class_of "ms.run" or ""
  local lines = { "", "---@class " .. class_of(name) .. parent }
  for _, option in ipairs(list) do
    local default = option.default ~= nil and option.default ~= "" and (" (%s)"):format(tostring(option.default)) or ""
    lines[#lines + 1] = ("---@field %s? %s %s%s"):format(option.name, option_type(option), option.doc, default)
  end
  return lines
end

local function function_lines(entry)
  local lines = { "" }
  lists.extend(lines, doc_lines(entry.text))
  local example = reference.example(entry.name)
  if example then lists.extend(lines, { "---```lua" }, doc_lines(example), { "---```" }) end
  local names = {}
  for i, each in ipairs(parameter_list(entry)) do
    names[i] = each[1]
    lines[#lines + 1] = ("---@param %s%s %s"):format(each[1], each[3] and "?" or "", each[2])
  end
  local result = result_type(entry)
  for _, each in ipairs(type(result) == "table" and result or { result }) do lines[#lines + 1] = "---@return " .. each end
  lines[#lines + 1] = ("function %s(%s) end"):format(entry.name, table.concat(names, ", "))
  return lines
end

local operators = { "---@operator add(Tensor|number): Tensor", "---@operator sub(Tensor|number): Tensor",
  "---@operator mul(Tensor|number): Tensor", "---@operator div(Tensor|number): Tensor", "---@operator unm: Tensor" }

local function type_lines(each, with_types)
  local lines = lists.extend({ "" }, doc_lines(each.text), { "---@class " .. each.name })
  if each.name == "Tensor" then lists.extend(lines, operators) end
  if each.name == "Runs" then lines[#lines + 1] = "---@field [integer] table points" end
  for _, field in ipairs(each.fields) do
    -- A bare `private` would be the field's visibility.
    local name = field[1] == "private" and '["private"]' or field[1]
    lines[#lines + 1] = ("---@field %s %s %s"):format(name, field[2], field[3])
  end
  lines[#lines + 1] = ("local %s = {}"):format(each.name)
  for _, entry in ipairs(reference.members(each.name, "method")) do lists.extend(lines, function_lines(with_types(entry))) end
  return lines
end

--- The whole file.
return function()
  local type_names = lists.set(lists.column(reference.types, "name"))
  local function with_types(entry) return lists.merged(entry, { types = type_names }) end
  local lines = { "---@meta moonshard", "-- Made by `moonshard run scripts/docs/meta.lua`; a test compares it with the module.",
    "-- luacheck: ignore" }
  local entries = reference.entries()
  for _, name in ipairs(lists.unique(lists.extend({ "ms.run", "ms.trainer.privacy" }, lists.column(entries, "name")))) do
    local list = options_of.of(name, true) or options_of.of_experiment[name] and {}
    if name == "ms.trainer" then
      list = lists.map(list, function(option)
        return option.name == "privacy" and lists.merged(option, { kind = class_of "ms.trainer.privacy" }) or option
      end)
    end
    if list then lists.extend(lines, option_class(name, list)) end
  end
  for _, each in ipairs(reference.types) do lists.extend(lines, type_lines(each, with_types)) end
  lists.extend(lines, { "", "---@class moonshard", "---@field version string the version of moonshard",
    "---@field libtorch_version string the version of LibTorch that it runs with", "local ms = {}" })
  for _, entry in ipairs(entries) do
    if entry.kind == "group" and entry.name ~= "ms" then lists.extend(lines, { "" }, doc_lines(entry.text), { entry.name .. " = {}" }) end
  end
  for _, entry in ipairs(entries) do
    if entry.kind == "function" then lists.extend(lines, function_lines(with_types(entry))) end
  end
  lists.extend(lines, { "", "return ms" })
  return table.concat(lines, "\n") .. "\n"
end
