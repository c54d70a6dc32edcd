--- What each field of a result.json means: ms.fields(), and docs/records.md, which is made from the same list
-- (runtime/records/schema.h).
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}

local FieldList = {}
FieldList.__index = FieldList

function FieldList:__tostring()
  local rows = {}
  for _, field in ipairs(self) do rows[#rows + 1] = { field.path, field.unit, field.doc } end
  return text_table.format({ "field", "unit", "meaning" }, rows)
end

--- Fields of a result, parts before their members.
-- @tparam[opt] string text only those whose path contains it
-- @treturn table list of { path, key, unit, doc }; tostring gives a table
function M.list(text)
  if text ~= nil and type(text) ~= "string" then
    error(("ms.fields: expected a part of a field's path as text, got %s; write ms.fields \"privacy\""):format(type(text)), 2)
  end
  local list = {}
  for _, field in ipairs(native.records.fields()) do
    if text == nil or field.path:find(text, 1, true) then list[#list + 1] = field end
  end
  return setmetatable(list, FieldList)
end

--- docs/records.md: run `moonshard run scripts/docs/records.lua > docs/records.md` after a change of the schema.
-- @treturn string
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
