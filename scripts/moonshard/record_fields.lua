--- What each field of a result.json means: ms.fields(), and docs/records.md, which is made from the same list
-- (runtime/records/schema.h).
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}

local FieldList = {}
FieldList.__index = FieldList

function FieldList:__tostring()
  local rows = lists.map(self, function(field) return { field.path, field.unit, field.doc } end)
  return text_table.format({ "field", "unit", "meaning" }, rows)
end

--- Fields of a result, parts before their members.
-- @tparam[opt] string text only those whose path contains it
-- @treturn table list of { path, key, unit, doc }; tostring gives a table
function M.list(text)
  if text ~= nil and type(text) ~= "string" then
    error(("ms.fields: expected a part of a field's path as text, got %s; write ms.fields \"privacy\""):format(type(text)), 2)
  end
  local function contains_text(field) return text == nil or field.path:find(text, 1, true) end
  return setmetatable(lists.select(native.records.fields(), contains_text), FieldList)
end

--- docs/records.md: run `moonshard run scripts/docs/records.lua > docs/records.md` after a change of the schema.
function M.page()
  local lines = {
    "# The record of a point",
    "",
    "Every experiment writes one `result.json`. This page lists its fields; [measurement.md](measurement.md) says how the figures are",
    "measured. It is made from `runtime/records/schema.h` by `moonshard run scripts/docs/records.lua`; a test compares the two.",
    "`[]` stands for each element of a list, `*` for a name (a phase, an owner). What was not measured is absent. The same list at the",
    "prompt: `ms.fields()`, or `ms.fields \"privacy\"`.",
    "",
    "| field | unit | meaning |",
    "|---|---|---|",
  }
  for _, field in ipairs(M.list()) do
    lines[#lines + 1] = ("| `%s` | %s | %s |"):format(field.path, field.unit, field.doc)
  end
  return table.concat(lines, "\n") .. "\n"
end

return M
