--- help(x): what a value is and how it is used, from the module's own documentation.
-- The module offers `doc_of(value)` with `{ name, signature, text }`; everything else is a fallback
-- for values without documentation.
local complete = require "moonshard.complete"
local lists = require "moonshard.lists"

local M = {}

local GENERAL = [[
Type Lua. An expression is printed; _ is the last value; an open block goes on at the ".. " prompt.
  help(ms)   ?ms.run   help "ms.run"     what there is and how it is used
  Tab                                    completes names, options of a call, file names
  Ctrl-R  Ctrl-C  Ctrl-D                 search the history, stop what runs, leave
  .help                                  the commands that are not Lua]]

--- The documentation that the module has for a value; nil without any.
function M.doc_of(module, value)
  local ask = type(module) == "table" and complete.field(module, "doc_of")
  if type(ask) ~= "function" then return nil end
  local ok, doc = pcall(ask, value)
  return ok and type(doc) == "table" and doc or nil
end

local function first_line(text)
  return type(text) == "string" and text:match("^%s*([^\n]*)") or ""
end

local function entry_text(doc)
  local parts = { doc.signature or doc.name or "(no name)" }
  if type(doc.text) == "string" and doc.text ~= "" then
    parts[#parts + 1] = "  " .. doc.text:gsub("%s+$", ""):gsub("\n", "\n  ")
  end
  return table.concat(parts, "\n")
end

-- Members of a table: documented ones with their first line, the names of the others after them.
local function member_lines(module, value)
  local documented, others, widest = {}, {}, 0
  for name in pairs(complete.members(value, false)) do
    local member = complete.field(value, name)
    local doc = member ~= nil and M.doc_of(module, member)
    if doc then
      documented[#documented + 1] = { name = name, line = first_line(doc.text) }
      widest = math.max(widest, #name)
    else
      others[#others + 1] = name
    end
  end
  table.sort(documented, function(a, b) return a.name < b.name end)
  table.sort(others)
  local lines = {}
  for _, item in ipairs(documented) do
    lines[#lines + 1] = ("  %-" .. widest .. "s  %s"):format(item.name, item.line):gsub("%s+$", "")
  end
  if #others > 0 then lines[#lines + 1] = "  without a text: " .. table.concat(others, ", ") end
  return lines
end

local function parameters(fn)
  local info, names = debug.getinfo(fn, "u"), {}
  for at = 1, info.nparams or 0 do names[at] = debug.getlocal(fn, at) or "?" end
  if info.isvararg then names[#names + 1] = "..." end
  return table.concat(names, ", ")
end

local function undocumented(name, value)
  local kind = type(value)
  if kind == "function" then
    local info = debug.getinfo(value, "S")
    if info.what == "C" then return name .. ": a native function, no help text" end
    return ("%s(%s): a function of %s:%d, no help text"):format(
      name, parameters(value), info.short_src, info.linedefined)
  end
  return name .. ": a " .. kind .. ", no help text"
end

-- The session's own name for a value, so that help(ms) shows the name ms.
local function name_in(env, value)
  for name, candidate in next, env do
    if type(name) == "string" and name ~= "_" and rawequal(candidate, value) then return name end
  end
  return "this value"
end

--- Help on a value.
-- @tparam table session has `module` and `env`
-- @tparam[opt] string name what the user called it
function M.on_value(session, value, name)
  local doc = M.doc_of(session.module, value)
  local lines = { doc and entry_text(doc) }
  name = name or name_in(session.env, value)
  if type(value) == "table" or type(value) == "userdata" then
    local members = member_lines(session.module, value)
    if not doc then lines[1] = name .. ": a " .. type(value) .. (#members > 0 and " with" or "") end
    lists.extend(lines, members)
  elseif not doc then
    lines[1] = undocumented(name, value)
  end
  return table.concat(lines, "\n")
end

--- Help on a dotted name, e.g. "ms.run" or "string.format".
-- @treturn boolean whether the name was known
function M.on_name(session, name)
  local path = lists.matches(name, "[^.:%s]+")
  local value = #path > 0 and complete.resolve(session.env, path)
  if value ~= nil and value ~= false then return M.on_value(session, value, name), true end
  local doc = M.doc_of(session.module, name)
  if doc then return entry_text(doc), true end
  return ("help: expected a known name or a value, got '%s'; try help(ms) for the module, "
    .. "help() for the prompt, or Tab after a dot"):format(name), false
end

--- The text of help() without an argument.
function M.general() return GENERAL end

return M
