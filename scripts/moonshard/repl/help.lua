--- help(x): what a value is and how it is used, from the module's own documentation.
-- The module offers `doc_of(value)` with `{ name, signature, text }`; everything else is a fallback
-- for values without documentation.
local complete = require "moonshard.complete"
local lists = require "moonshard.lists"

local M = {}

local MAX_TYPE = 44  -- bytes of an option's type
local MAX_OPTIONS = 40  -- of one function
local MAX_LEFT, MIN_ROOM = 60, 30  -- columns of what stands beside a meaning, and of the meaning
-- Those of an experiment that one sets first.
local USUAL = lists.set { "model", "task", "mode", "batch_size", "seq_length", "max_grad_norm", "noise_multiplier", "target_epsilon",
  "optimizer", "lr", "iters", "warmup", "device", "dtype", "parallel", "nproc", "data_folder", "profile", "seed" }

local GENERAL = [[
Type Lua. An expression is printed; _ is the last value; an open block goes on at the ".. " prompt.
  help(ms)   ?ms.run   x?   ?x:method    what there is and how it is used
  help "seq_length"                      options, functions and fields by a part of their names
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

-- A function of the module that a fake one in a test may lack.
local function ask(module, name, ...)
  local fn = type(module) == "table" and complete.field(module, name)
  if type(fn) ~= "function" then return nil end
  local ok, found = pcall(fn, ...)
  return ok and found or nil
end

local function indented(text, margin) return margin .. text:gsub("%s+$", ""):gsub("\n", "\n" .. margin) end

-- Words in lines of at most `width` bytes; lines behind the first start with the margin.
local function wrapped(text, width, margin)
  local lines, line = {}, ""
  for word in text:gmatch("%S+") do
    local longer = line == "" and word or line .. " " .. word
    if #longer > width and line ~= "" then
      lines[#lines + 1] = line
      line = word
    else
      line = longer
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n" .. margin)
end

-- A text of several lines keeps them; long ones are broken.
local function paragraph(text, width)
  local parts = {}
  for line in (text:gsub("%s+$", "") .. "\n"):gmatch("([^\n]*)\n") do parts[#parts + 1] = "  " .. wrapped(line, width - 2, "  ") end
  return table.concat(parts, "\n")
end

-- Rows of { left, text }: the text beside the left part, or below it where that is too wide or the screen too narrow.
local function beside(rows, width)
  local widest = 0
  for _, row in ipairs(rows) do
    if #row[1] <= MAX_LEFT then widest = math.max(widest, #row[1]) end
  end
  return lists.map(rows, function(row)
    local room = width - widest - 4
    if #row[1] > widest or room < MIN_ROOM then return ("  %s\n      %s"):format(row[1], wrapped(row[2], width - 6, "      ")) end
    return (("  %-" .. widest .. "s  %s"):format(row[1], wrapped(row[2], room, (" "):rep(widest + 4))):gsub("%s+$", ""))
  end)
end

local function default_text(value)
  if value == nil then return "" end
  return value == "" and '""' or tostring(value)
end

-- Name, type, default, meaning of each.
local function option_lines(list, width)
  local widest, widest_type, widest_default = 0, 0, 0
  local rows = lists.map(list, function(option)
    local kind = #option.type > MAX_TYPE and option.type:sub(1, MAX_TYPE - 3) .. "..." or option.type
    local row = { option.name, kind, default_text(option.default), option.doc }
    widest, widest_type = math.max(widest, #row[1]), math.max(widest_type, #kind)
    widest_default = math.max(widest_default, #row[3])
    return row
  end)
  local shape = ("%%-%ds  %%-%ds  %%-%ds"):format(widest, widest_type, widest_default)
  return beside(lists.map(rows, function(row) return { (shape:format(row[1], row[2], row[3]):gsub("%s+$", "")), row[4] } end), width)
end

-- An experiment's options would fill the screen behind each function that takes them.
local function options_text(module, name, width)
  local list = ask(module, "options_of", name)
  if not list then return nil end
  local shown = list
  if #list > MAX_OPTIONS then
    local shared = lists.set(lists.column(ask(module, "options_of", "ms.run") or {}, "name"))
    shown = lists.select(list, function(option) return not shared[option.name] or name == "ms.run" and USUAL[option.name] end)
  end
  local lines = { "options:  (name, type, default, meaning)" }
  lists.extend(lines, option_lines(shown, width))
  if #shown < #list then lines[#lines + 1] = "  and those of an experiment: ms.options() lists them, help \"NAME\" explains one" end
  return table.concat(lines, "\n")
end

local function example_text(name)
  local ok, examples = pcall(require, "moonshard.reference.examples")
  local example = ok and type(name) == "string" and examples[name]
  return example and "example:\n" .. indented(example, "  ") or nil
end

local function entry_text(doc, session)
  local module, width = session.module, session.host.width()
  local parts = { doc.signature or doc.name or "(no name)" }
  if type(doc.text) == "string" and doc.text ~= "" then parts[#parts + 1] = paragraph(doc.text, width) end
  if module and type(doc.name) == "string" and complete.field(module, "options_of") then
    parts[#parts + 1] = options_text(module, doc.name, width)
    parts[#parts + 1] = example_text(doc.name)
  end
  return table.concat(parts, "\n")
end

-- The type of an object that the module documents: native ones name it in their metatable, ours in their class.
local function type_name(value)
  local meta = debug.getmetatable(value)
  if type(meta) ~= "table" then return nil end
  local name = rawget(meta, type(value) == "userdata" and "__metatable" or "__name")
  return type(name) == "string" and name or nil
end

-- What an object of a documented type is and has.
local function object_lines(session, value, name, kind)
  local module, width = session.module, session.host.width()
  local doc = M.doc_of(module, kind)
  if not doc then return nil end
  local lines, fields, methods = { ("%s: a %s"):format(name, kind), paragraph(doc.text, width) }, {}, {}
  for member in pairs(complete.members(value, false)) do
    local field = M.doc_of(module, ("%s.%s"):format(kind, member))
    local method = not field and M.doc_of(module, complete.field(value, member))
    if field then fields[#fields + 1] = { (field.signature:gsub("^" .. kind .. "%.", "")), field.text } end
    if method then methods[#methods + 1] = { (method.signature:gsub("^" .. kind .. ":", "")), first_line(method.text) } end
  end
  for _, group in ipairs { { "fields:", fields }, { "methods:", methods } } do
    table.sort(group[2], function(a, b) return a[1] < b[1] end)
    if #group[2] > 0 then lists.extend(lines, { group[1] }, beside(group[2], width)) end
  end
  return lines
end

-- Members of a table: documented ones with their first line, the names of the others after them.
local function member_lines(module, value, width)
  local documented, others = {}, {}
  for name in pairs(complete.members(value, false)) do
    local member = complete.field(value, name)
    local doc = member ~= nil and (type(member) == "string" and M.doc_of(module, "ms." .. name) or M.doc_of(module, member))
    if doc then
      documented[#documented + 1] = { name = name, line = first_line(doc.text) }
    else
      others[#others + 1] = name
    end
  end
  table.sort(documented, function(a, b) return a.name < b.name end)
  table.sort(others)
  local lines = beside(lists.map(documented, function(item) return { item.name, item.line } end), width)
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
  local is_name = type(value) == "string"
  local doc = not is_name and M.doc_of(session.module, value) or nil
  local lines = { doc and entry_text(doc, session) }
  name = name or name_in(session.env, value)
  local kind = type_name(value)
  local object = kind and object_lines(session, value, name, kind)
  if object then return table.concat(object, "\n") end
  if type(value) == "table" or type(value) == "userdata" then
    local members = member_lines(session.module, value, session.host.width())
    if not doc then lines[1] = name .. ": a " .. type(value) .. (#members > 0 and " with" or "") end
    lists.extend(lines, members)
  elseif not doc then
    lines[1] = undocumented(name, value)
  end
  return table.concat(lines, "\n")
end

-- An option by its name: type, default, meaning, and who takes it.
local function on_option(name)
  local ok, reference = pcall(require, "moonshard.reference")
  if not ok then return nil end
  local parts = {}
  local function is_asked(option) return option.name == name or lists.contains(option.aliases, name) end
  for _, found in ipairs(reference.find_options(is_asked)) do
    local option = found.option
    local default = option.default ~= nil and (", default %s"):format(default_text(option.default)) or ""
    local owners = table.concat(found.of, ", "):gsub("ms%.run", "an experiment (ms.run, ms.sweep, ...)")
    parts[#parts + 1] = ("%s: option of %s\n  %s%s\n  %s"):format(option.name, owners, option.type, default, option.doc)
  end
  return #parts > 0 and table.concat(parts, "\n") or nil
end

--- Help on a dotted name, e.g. "ms.run", "runs:plot" or "string.format"; on an option; or what a text is part of.
-- @treturn boolean whether the name was known
function M.on_name(session, name)
  local path = lists.matches(name, "[^.:%s]+")
  local value = #path > 0 and complete.resolve(session.env, path)
  local doc = M.doc_of(session.module, name)
  if doc then return entry_text(doc, session), true end
  if value ~= nil and value ~= false then return M.on_value(session, value, name), true end
  -- Type:method without an object of that type.
  for _, entry in ipairs(path[2] and ask(session.module, "search", name) or {}) do
    if entry.name == name then
      local ok, found = pcall(function() return require("moonshard.reference").entry(name) end)
      if ok and found then return entry_text(found, session), true end
    end
  end
  if complete.field(session.module or {}, "search") then
    local option = on_option(name)
    if option then return option, true end
    local found = ask(session.module, "search", name)
    if found and #found > 0 then
      -- Meanings are looked through only for what no name has.
      local named = lists.select(found, function(each) return each.name:lower():find(name:lower(), 1, true) ~= nil end)
      if #named > 0 then found = named end
      local rows = lists.map(found, function(each) return { each.name, first_line(each.text) } end)
      return ("'%s' is part of:\n%s"):format(name, table.concat(beside(rows, session.host.width()), "\n")), true
    end
  end
  return ("help: expected a known name or a value, got '%s'; try help(ms) for the module, "
    .. "help() for the prompt, or Tab after a dot"):format(name), false
end

--- The text of help() without an argument.
function M.general() return GENERAL end

return M
