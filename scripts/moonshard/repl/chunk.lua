--- From an entry of the prompt to a function: expression or statement, complete or not.
local lexer = require "moonshard.repl.lexer"

local M = {}

local BYTECODE_MARK = "\27"

-- "near", because "'<eof>' expected near 'x'" says the opposite: too much text. A quoted string
-- ends with its line, so that no further line can close it, unless a backslash stands at the end.
local function ends_early(message, text)
  if message:find("unfinished string", 1, true) then return text:sub(-1) == "\\" end
  return message:find("near '<eof>'", 1, true) ~= nil
end

-- "1 +* 2" is no statement at all, so "unexpected symbol near '1'" would point at the wrong place:
-- when the statement parser fails at the first token, the expression parser's error is better.
local function better_message(text, as_expression, as_statement)
  local first = lexer.code_tokens(text)[1]
  if first and first.kind ~= "keyword"
    and as_statement:find("unexpected symbol near '" .. first.text .. "'", 1, true) then
    return as_expression
  end
  return as_statement
end

local function compile_statement(text, name, env)
  local fn, message = load(text, "=" .. name, "t", env)
  if not fn then return nil, message end
  -- The text as it stands was accepted, so hoisting cannot make wrong source right.
  local hoisted = lexer.hoist(text)
  local hoisted_fn = load(hoisted, "=" .. name, "t", env)
  return {
    fn = hoisted_fn or fn, kind = "statement", source = text,
    hoisted = hoisted_fn and hoisted or text,
  }
end

--- Compile one entry.
-- @tparam string text what was typed
-- @tparam string name chunk name shown in messages
-- @tparam table env the session environment
-- @treturn[1] table `{ fn, kind = "expression"|"statement", source, quiet }`; `quiet` is set for an
--   expression that could stand as a statement (a call): its nil results are not worth a line
-- @treturn[2] nil
-- @treturn[2] string message
-- @treturn[2] boolean whether more input could complete the entry
function M.compile(text, name, env)
  if text:sub(1, 1) == BYTECODE_MARK then
    return nil, name .. ": expected Lua source text, got byte code (first byte 0x1B); "
      .. "paste the source instead", false
  end
  local marked = text:match("^%s*=([^=].*)$") or text:match("^%s*=()$") and ""
  local expression = marked or text
  local fn, as_expression = load("return " .. expression, "=" .. name, "t", env)
  if fn then
    -- load skips a first line that starts with '#', as a shell's; here it is a length, and no statement.
    local quiet = not marked and not expression:find("^#") and load(expression, "=" .. name, "t", env) ~= nil
    return { fn = fn, kind = "expression", source = expression, quiet = quiet }
  end
  if marked then return nil, as_expression, ends_early(as_expression, text) end
  local chunk, as_statement = compile_statement(text, name, env)
  if chunk then return chunk end
  return nil, better_message(text, as_expression, as_statement),
    ends_early(as_statement, text) or ends_early(as_expression, text)
end

--- The line of a saved script that does what a compiled entry did.
-- @tparam table chunk from `compile`
function M.as_script(chunk)
  if chunk.kind == "expression" then
    return chunk.quiet and chunk.source or "_ = " .. chunk.source
  end
  local returned = chunk.source:match("^%s*return(%s.*)$")
  if returned and load("return " .. returned) then return "_ = " .. returned:match("^%s*(.*)$") end
  if lexer.returns(chunk.source) then
    -- A return ends the entry, not the script.
    return "(function()\n" .. chunk.hoisted .. "\nend)()"
  end
  return chunk.source
end

return M
