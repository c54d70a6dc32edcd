--- docs/reference.md: every function, method, field and option. Run `moonshard run scripts/docs/reference.lua > docs/reference.md` after a
-- change of a signature, a text, an option or an example.
local examples = require "moonshard.reference.examples"
local lists = require "moonshard.lists"
local pretty = require "moonshard.pretty"
local reference = require "moonshard.reference"

local options_of = reference.options

local HEAD = [[
# Reference

Every function, method, field and option of the Lua module. The page is made from the module's own descriptors by
`moonshard run scripts/docs/reference.lua`; a test compares the two, and runs every example. The same at the prompt: `help(ms.trainer)`,
`?runs:plot`, `help "seq_length"`; in an editor with lua-language-server: `scripts/meta/moonshard.lua`, to which `.luarc.json` points.

`[x]` may be left out, `{ a, b }` is a table of named options, `…` stands for more of them. A function that takes one table is called
`ms.run { … }`. An unknown option is an error that names the nearest one. The examples share these lines, a folder `corpus` with a text,
`reviews.jsonl` with four labelled ones, and a memory snapshot; `-->` is what they print, `…` in it anything.

```lua
%s
```
]]

local function cell(text) return (tostring(text):gsub("|", "\\|"):gsub("%s*\n%s*", " ")) end

local function default_text(option)
  if option.default == nil then return "" end
  if option.default == "" then return "`\"\"`" end
  return "`" .. cell(type(option.default) == "string" and option.default or pretty.format(option.default)) .. "`"
end

local function option_table(list)
  local lines = { "", "| option | type | default | meaning |", "|---|---|---|---|" }
  for _, option in ipairs(list) do
    local also = #option.aliases > 0 and (" (also `%s`)"):format(table.concat(option.aliases, "`, `")) or ""
    lines[#lines + 1] = ("| `%s` | %s | %s | %s%s |"):format(option.name, cell(option.type), default_text(option), cell(option.doc), also)
  end
  return lines
end

local function anchor_of(title) return (title:lower():gsub("[^%w%- _]", ""):gsub(" ", "-")) end

--- Heading, text, options, example.
local function entry_lines(entry)
  local lines = { "", "### `" .. entry.name .. "`", "", "    " .. entry.signature, "", entry.text }
  local list = options_of.of(entry.name, true)
  if entry.name == "ms.run" then list = nil end
  if list then lists.extend(lines, option_table(list)) end
  if options_of.of_experiment[entry.name] then
    lists.extend(lines, { "", ("%s [options of an experiment](#options-of-an-experiment)."):format(list and "And all" or "Takes the") })
  end
  if entry.name == "ms.trainer" then
    lists.extend(lines, { "", "`privacy` is a table of these:" }, option_table(options_of.of "ms.trainer.privacy"))
  end
  if examples[entry.name] then lists.extend(lines, { "", "```lua", examples[entry.name], "```" }) end
  return lines
end

local function field_lines(fields)
  if #fields == 0 then return {} end
  local lines = { "", "| field | type | meaning |", "|---|---|---|" }
  for _, field in ipairs(fields) do lines[#lines + 1] = ("| `%s` | %s | %s |"):format(field[1], cell(field[2]), cell(field[3])) end
  return lines
end

local function group_lines(name, text)
  local lines = { "", "## " .. name, "", text }
  for _, entry in ipairs(reference.members(name, "value")) do
    lists.extend(lines, { "", ("`%s`: %s"):format(entry.name, entry.text) })
  end
  for _, entry in ipairs(reference.members(name, "function")) do lists.extend(lines, entry_lines(entry)) end
  return lines
end

local function type_lines(each)
  local lines = { "", "## " .. each.name, "", each.text }
  lists.extend(lines, field_lines(each.fields))
  for _, entry in ipairs(reference.members(each.name, "method")) do lists.extend(lines, entry_lines(entry)) end
  return lines
end

local function contents()
  local groups = lists.select(reference.entries(), function(entry) return entry.kind == "group" end)
  local function link(name) return ("[%s](#%s)"):format(name, anchor_of(name)) end
  local function links(names) return table.concat(lists.map(names, link), " · ") end
  return { "Functions: " .. links(lists.column(groups, "name")), "",
    "Types: " .. links(lists.column(reference.types, "name")), "", "[Options of an experiment](#options-of-an-experiment)" }, groups
end

--- The whole page.
return function()
  local links, groups = contents()
  local lines = lists.extend({ (HEAD:format(examples.prelude)) }, links)
  for _, group in ipairs(groups) do lists.extend(lines, group_lines(group.name, group.text)) end
  for _, each in ipairs(reference.types) do lists.extend(lines, type_lines(each)) end
  lists.extend(lines, { "", "## Options of an experiment", "",
    "What `ms.run`, `ms.resolve`, `ms.sweep`, `ms.find_max_batch`, `ms.plan` and `ms.rank_memory` take, and `moonshard profile` "
      .. "as flags." },
    option_table(options_of.experiment()))
  return table.concat(lines, "\n") .. "\n"
end
