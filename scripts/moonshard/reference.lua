--- What the module says about itself, in one list: functions, methods, fields and types with signature, text, options and example.
-- help(), completion, docs/reference.md and scripts/meta/moonshard.lua are made from it.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local options = require "moonshard.reference.options"
local types = require "moonshard.reference.types"

local M = { options = options }

local is_type = lists.set(lists.column(types, "name"))
M.types = types

-- Tables of functions below ms.
local groups = { "analyze", "data", "dist", "log", "optim", "privacy", "trace", "weights" }

--- What a documented name is: "function", "method", "field", "type", "group"; nil for what is not for scripts.
local function kind_of(entry)
  local owner, mark = entry.name:match("^(%a+)([.:])[%w_]+$")
  if is_type[entry.name] then return "type", entry.name end
  if owner and is_type[owner] then return mark == ":" and "method" or "field", owner end
  if entry.name == "ms" or lists.contains(groups, entry.name:match("^ms%.(%a+)$")) then return "group", entry.name end
  if entry.name:find("^ms%.") then
    return entry.signature:find("^[^%s({]+%s*[({]") and "function" or "value", entry.name:match("^(ms%.%a+)%.") or "ms"
  end
end

--- The example of a function or method; nil without one.
function M.example(name) return require("moonshard.reference.examples")[name] end

--- All that scripts may use, sorted by name.
-- @treturn {table,...} each name, signature, text, kind, owner
function M.entries()
  local seen, list = {}, {}
  for _, entry in ipairs(native.docs.entries()) do
    local kind, owner = kind_of(entry)
    if kind and not seen[entry.name] then
      seen[entry.name] = true
      list[#list + 1] = { name = entry.name, signature = entry.signature, text = entry.text, kind = kind, owner = owner }
    end
  end
  return list
end

--- The entry of a name; nil without one.
function M.entry(name)
  return lists.select(M.entries(), function(entry) return entry.name == name end)[1]
end

--- Entries of one kind and owner.
function M.members(owner, kind)
  return lists.select(M.entries(), function(entry) return entry.owner == owner and entry.kind == kind end)
end

--- The type that a function gives, as its signature says; nil for a plain value.
function M.result_of(name)
  local entry = M.entry(name)
  local kind = entry and entry.signature:match("%->%s*(%a+)%s*$")
  return kind and is_type[kind] and kind or nil
end

--- Names of a type's methods and fields as a set.
function M.members_of(kind, methods_only)
  local names = lists.extend(M.members(kind, "method"), methods_only and {} or M.members(kind, "field"))
  return lists.set(lists.map(names, function(entry) return entry.name:match("[%w_]+$") end))
end

--- ms.options_of: options of a function.
-- @tparam function|string value the function, or its name: "ms.clip", "Sweep:run"
-- @treturn table list of { name, kind, type, default, choices, doc }; nil when it takes none
function M.options_of(value)
  local doc = type(value) ~= "string" and package.loaded["moonshard"].doc_of(value)
  local name = doc and doc.name or value
  if type(name) ~= "string" then return nil end
  return options.of(name)
end

local function contains(text, part) return type(text) == "string" and text:lower():find(part:lower(), 1, true) ~= nil end

--- Where an option is taken: { name = option, of = { functions } }, for all whose name a function accepts.
function M.find_options(accepts)
  local found, order = {}, {}
  local names = lists.unique(lists.extend(options.names(), lists.column(M.entries(), "name"), { "ms.trainer.privacy" }))
  for _, name in ipairs(names) do
    for _, option in ipairs(options.of(name, true) or {}) do
      if accepts(option) then
        -- One name may mean two things: ms.sweep's `name`, ms.find_max_batch's.
        local key = option.name .. "\0" .. option.doc
        if not found[key] then
          found[key] = { option = option, of = {} }
          order[#order + 1] = found[key]
        end
        table.insert(found[key].of, name)
      end
    end
  end
  return order
end

--- ms.search: names, options and fields of records that a text is part of.
-- @treturn {table,...} each { name, text }
function M.search(text)
  if type(text) ~= "string" or text == "" then
    error(("ms.search: expected a part of a name or a meaning, got %s; write ms.search \"epsilon\""):format(tostring(text)), 2)
  end
  local list = {}
  for _, entry in ipairs(M.entries()) do
    if contains(entry.name, text) or contains(entry.text, text) then list[#list + 1] = { name = entry.name, text = entry.text } end
  end
  for _, found in ipairs(M.find_options(function(option) return contains(option.name, text) or contains(option.doc, text) end)) do
    list[#list + 1] = { name = ("option %s of %s"):format(found.option.name, table.concat(found.of, ", ")), text = found.option.doc }
  end
  for _, field in ipairs(native.records.fields()) do
    if contains(field.path, text) then list[#list + 1] = { name = "field " .. field.path, text = field.doc } end
  end
  -- What has the very name comes first.
  local function has_name(each)
    return each.name == text or each.name == "ms." .. text or each.name:sub(1, #text + 8) == ("option %s "):format(text)
  end
  local first = lists.select(list, has_name)
  return require("moonshard.reference.shown").matches(lists.extend(first, lists.select(list, function(each) return not has_name(each) end)))
end

-- An unknown member is an error with the nearest name: nil would only fail later, and elsewhere.
local function guard_members(owner, name)
  setmetatable(owner, { __index = function(_, key)
    local known = lists.select(lists.keys(owner), function(each) return type(each) == "string" end)
    error(("%s: expected a member, got '%s'%s"):format(name, tostring(key),
      type(key) == "string" and guard.hint(key, known, ("; help(%s) lists them"):format(name)) or ""), 2)
  end })
end

local function document_types(document)
  for _, each in ipairs(types) do
    document(each.name, each.name, each.name, each.text)
    for _, field in ipairs(each.fields) do
      document(each.name .. "." .. field[1], each.name .. "." .. field[1], ("%s.%s: %s"):format(each.name, field[1], field[2]), field[3])
    end
    local class = each.module and require(each.module).class
    if class then class.__name = each.name end
    for _, method in ipairs(each.methods or {}) do
      local name = each.name .. ":" .. method[1]
      document(class[method[1]], name, name .. method[2], method[3])
    end
  end
end

--- Fills the module: documentation of what is written in Lua, lists that print as tables, errors for unknown members.
function M.attach(ms)
  document_types(ms.document)
  local shown = require "moonshard.reference.shown"
  for _, name in ipairs { "models", "engines", "options", "run", "last_run" } do
    local doc, wrapped = ms.doc_of(ms[name]), shown.wrapped(name, ms[name])
    -- Both, or the text would depend on which of the two the garbage collector has left.
    for _, each in ipairs { wrapped, ms[name] } do ms.document(each, doc.name, doc.signature, doc.text .. " print shows a table.") end
    ms[name] = wrapped
  end
  ms.options_of, ms.values_of, ms.search = M.options_of, options.values, M.search
  ms.document(ms.values_of, "ms.values_of", "ms.values_of(name[, position]) -> list or nil",
    "Words that completion offers for a text: of an option by its name, of a function's argument by the function's.")
  ms.document(ms.options_of, "ms.options_of", "ms.options_of(function or name) -> list or nil",
    "The options of a function or method: name, kind, type, default, choices, doc.")
  ms.document(ms.search, "ms.search", "ms.search(text) -> list of { name, text }",
    "Functions, options and fields of records that a text is part of, by name or meaning. print shows a table.")
  ms.document(ms.analyze, "ms.analyze", "ms.analyze",
    "Analyses of results: overhead, memory, stages, phases, scaling, tradeoff, bottleneck.")
  ms.document("ms.version", "ms.version", "ms.version: text", "The version of moonshard.")
  ms.document("ms.libtorch_version", "ms.libtorch_version", "ms.libtorch_version: text", "The version of LibTorch that it runs with.")
  for _, group in ipairs(groups) do guard_members(ms[group], "ms." .. group) end
  guard_members(ms, "ms")
end

return M
