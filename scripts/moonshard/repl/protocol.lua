--- The prompt for programs (`moonshard repl --json`, bindings/host/repl_server.h): each method takes the text of a request and returns its
-- answer as JSON. Answers to code have
--   status      "ok", "error", "interrupted" or "exit"
--   text, html  the printed values; html where they are tables
--   images      list of { mime, path }: pictures that the values name
--   error       { message, traceback = { lines } }
-- Absent is what there is none of.
local commands = require "moonshard.repl.commands"
local complete = require "moonshard.complete"
local figures = require "moonshard.repl.figures"
local help = require "moonshard.repl.help"

local M = {}

local function encode(value) return require("moonshard.native").records.to_json(value) end

--- Tables that a value shows, as HTML; nil when it shows none.
local function html_of(value)
  if type(value) ~= "table" then return nil end
  local html = require "moonshard.html"
  local shown = require("moonshard.reference.shown").table_of(value) or value
  local meta = debug.getmetatable(value)
  local kind = type(meta) == "table" and rawget(meta, "__name")
  local tables = { shown }
  if kind == "Comparison" then tables = value.tables end
  if kind == "Runs" then
    local columns, rows = value:rows()
    tables = { { columns = columns, rows = rows } }
  end
  local parts = {}
  for _, each in ipairs(tables) do
    if type(each) ~= "table" or type(each.columns) ~= "table" or type(each.rows) ~= "table" then return nil end
    if each.title then parts[#parts + 1] = html.text("p", each.title) end
    parts[#parts + 1] = html.table(each.columns, each.rows, nil, each.unit)
    for _, note in ipairs(each.notes or {}) do parts[#parts + 1] = html.text("p", note) end
  end
  return table.concat(parts, "\n")
end

local function error_part(text)
  local lines = {}
  for line in text:gmatch("[^\n]+") do lines[#lines + 1] = line end
  return { message = lines[1] or "error", traceback = #lines > 0 and lines or nil }
end

-- A cell of a notebook may be statements and then an expression (or a command) whose value is wanted, which is no Lua chunk. Where the
-- whole does not compile, the shortest end that stands for itself behind a beginning that compiles is run apart.
local function parts_of(session, text)
  if commands.find(text) ~= nil or session:compile(text) then return { text } end
  local starts = {}
  for at in text:gmatch("\n()") do table.insert(starts, 1, at) end
  for _, at in ipairs(starts) do
    local before, last = text:sub(1, at - 1), text:sub(at)
    local is_end = last:find("%S") and (commands.find(last) or session:compile(last))
    if is_end and session:compile(before) then return { before, last } end
  end
  return { text }
end

--- Runs an entry. What code prints goes to standard output; what the session prints is the answer.
function M.answer_code(session, text)
  local out, err, host = {}, {}, session.host
  local before_out, before_err = host.out, host.err
  host.out = function(piece) out[#out + 1] = piece end
  host.err = function(piece) err[#err + 1] = piece end
  session.printed, session.was_interrupted = nil, false
  local outcome = true
  for _, part in ipairs(parts_of(session, text)) do
    if outcome == true then outcome = session:run(part) end
  end
  host.out, host.err = before_out, before_err
  local answer = { status = "ok" }
  if outcome == "exit" then answer.status = "exit" end
  if outcome == false then
    answer.status = session.was_interrupted and "interrupted" or "error"
    answer.error = error_part(table.concat(err))
  end
  if #out > 0 then answer.text = table.concat(out):gsub("\n$", "") end
  if session.printed ~= nil and outcome ~= false then
    -- A value's own methods run here, too; the text above is always there.
    local ok, html = pcall(html_of, session.printed)
    answer.html = ok and html or nil
    local pictures = figures.of(session.printed)
    if #pictures > 0 then answer.images = pictures end
  end
  return encode(answer)
end

--- Candidates for the text before the cursor: matches (whole words) and how much of each is there already.
function M.answer_complete(session, text)
  local words, prefix = complete.candidates(text, session:completion_context())
  return encode { status = "ok", matches = #words > 0 and words or nil, prefix = prefix }
end

--- Help on what the text before the cursor is about.
function M.answer_inspect(session, text)
  local subject = complete.subject(text)
  if not subject then return encode { status = "ok", found = false } end
  local found, known = help.on_name(session, subject)
  return encode { status = "ok", found = known and true or false, text = known and found or nil, name = subject }
end

--- Whether an entry can be run as it is.
function M.answer_is_complete(session, text)
  return encode { status = "ok", complete = session:is_complete(text) }
end

return M
