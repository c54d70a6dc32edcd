--- Tokens of Lua source, also of source that stops in the middle.
-- Completion needs to know where the cursor stands (in a string, after a dot, in a table
-- constructor), and hoisting which `local` is at the top level. Neither needs a parser.
-- Invariant: tokens are in order, do not overlap, and only white space lies between them.
local lists = require "moonshard.lists"

local M = {}

--- Reserved words of LuaJIT (goto is one as far as names go).
M.keywords = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
  "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
}

local is_keyword = lists.set(M.keywords)

-- LuaJIT takes every byte above 127 as a letter, so UTF-8 names are names.
local NAME = "^[%a_\128-\255][%w_\128-\255]*"
local OPERATORS = { "...", "..", "==", "~=", "<=", ">=", "::" }
local OPENS = lists.set { "function", "if", "do", "repeat" }
local CLOSES = lists.set { "end", "until" }
local BRACKETS = {
  ["("] = 1, ["{"] = 1, ["["] = 1, [")"] = -1, ["}"] = -1, ["]"] = -1,
}

--- Whether a text is a name that may stand after a dot.
function M.is_name(text) return text:match(NAME .. "$") ~= nil and not is_keyword[text] end

local function long_bracket(text, position, kind, start)
  local level = text:match("^%[(=*)%[", position)
  if not level then return nil end
  local content = position + #level + 2
  local _, last = text:find("]" .. level .. "]", content, true)
  return { kind = kind, first = start, last = last or #text, open = not last, content = content }
end

local function short_string(text, position)
  local quote = text:sub(position, position)
  local at = position + 1
  while at <= #text do
    local char = text:sub(at, at)
    if char == quote or char == "\n" then
      return { kind = "string", first = position, last = char == quote and at or at - 1, content = position + 1 }
    end
    at = at + (char == "\\" and 2 or 1)
  end
  return { kind = "string", first = position, last = #text, open = true, content = position + 1 }
end

local function number(text, position)
  local _, last = text:find("^%.?%d[%w_.]*", position)
  if not last then return nil end
  local body = text:sub(position, last)
  if body:match("[eE]$") and not body:match("^0[xX]") then
    local _, exponent = text:find("^[+-]%d+", last + 1)
    last = exponent or last
  end
  return { kind = "number", first = position, last = last }
end

local function comment(text, position)
  if text:sub(position, position + 1) ~= "--" then return nil end
  local long = long_bracket(text, position + 2, "comment", position)
  if long then return long end
  local stop = text:find("\n", position, true)
  return { kind = "comment", first = position, last = (stop or #text + 1) - 1, open = not stop }
end

local function operator(text, position)
  for _, symbol in ipairs(OPERATORS) do
    if text:sub(position, position + #symbol - 1) == symbol then
      return { kind = "op", first = position, last = position + #symbol - 1 }
    end
  end
  return { kind = "op", first = position, last = position }
end

local function token_at(text, position)
  local char = text:sub(position, position)
  if char == '"' or char == "'" then return short_string(text, position) end
  local _, last = text:find(NAME, position)
  if last then
    local kind = is_keyword[text:sub(position, last)] and "keyword" or "name"
    return { kind = kind, first = position, last = last }
  end
  return number(text, position) or comment(text, position)
    or long_bracket(text, position, "string", position) or operator(text, position)
end

--- Split source into tokens.
-- @tparam string text Lua source, complete or not
-- @treturn table list of `{ kind, text, first, last, open, content }`; `open` marks a string or
--   comment that the text ends in, `content` is where the inside of a string starts
function M.tokens(text)
  local list, position = {}, text:find("%S")
  while position do
    local token = token_at(text, position)
    token.text = text:sub(token.first, token.last)
    list[#list + 1] = token
    position = text:find("%S", token.last + 1)
  end
  return list
end

--- Tokens without comments: what the Lua parser sees.
function M.code_tokens(text)
  return lists.select(M.tokens(text), function(token) return token.kind ~= "comment" end)
end

local function depth_change(token)
  if token.kind == "keyword" then
    return OPENS[token.text] and 1 or CLOSES[token.text] and -1 or 0
  end
  return token.kind == "op" and BRACKETS[token.text] or 0
end

-- `local a, b` at token `index`: the last name, and the text of the token after it.
local function declared_names(tokens, index)
  local at = index + 1
  while tokens[at + 1] and tokens[at + 1].text == "," and tokens[at + 2] do at = at + 2 end
  local after = tokens[at + 1]
  return tokens[at], after and after.text
end

--- Turn the top-level `local` declarations of an entry into assignments, so that a name declared on
-- one line is still there on the next. Blocks and function bodies keep their locals. Positions in
-- error messages stay right: the word is replaced by blanks of the same length.
-- @tparam string text source that compiles as it stands
-- @usage lexer.hoist("local x = 1")  --> "      x = 1"
function M.hoist(text)
  local tokens, depth = M.code_tokens(text), 0
  local pieces, from = {}, 1
  for index, token in ipairs(tokens) do
    local following = tokens[index + 1]
    if depth == 0 and token.text == "local" and following then
      pieces[#pieces + 1] = text:sub(from, token.first - 1) .. (" "):rep(5)
      from = token.last + 1
      if following.kind == "name" then
        local last, after = declared_names(tokens, index)
        if after ~= "=" then
          -- The semicolon keeps a following "(f or g)()" from becoming a call of nil.
          local value = after == ";" and " = nil" or " = nil;"
          pieces[#pieces + 1] = text:sub(from, last.last) .. value
          from = last.last + 1
        end
      end
    end
    depth = depth + depth_change(token)
  end
  pieces[#pieces + 1] = text:sub(from)
  return table.concat(pieces)
end

--- Whether a chunk can return from its own top level (a `return` outside every function body).
function M.returns(text)
  local blocks, functions = {}, 0
  for _, token in ipairs(M.code_tokens(text)) do
    if token.kind == "keyword" then
      if OPENS[token.text] then
        blocks[#blocks + 1] = token.text
        if token.text == "function" then functions = functions + 1 end
      elseif CLOSES[token.text] then
        if table.remove(blocks) == "function" then functions = functions - 1 end
      elseif token.text == "return" and functions == 0 then
        return true
      end
    end
  end
  return false
end

return M
