--- Text as HTML: escaping, elements, tables. Whatever names and messages hold, the page stays well-formed UTF-8.
local lists = require "moonshard.lists"
local text_table = require "moonshard.text_table"

local M = {}

local marks = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }

-- Lead bytes with the second bytes that may follow, and how many plain continuation bytes come after.
local sequences = {
  { "^[\194-\223][\128-\191]", 2 }, { "^\224[\160-\191][\128-\191]", 3 }, { "^[\225-\236\238\239][\128-\191][\128-\191]", 3 },
  { "^\237[\128-\159][\128-\191]", 3 }, { "^\240[\144-\191][\128-\191][\128-\191]", 4 },
  { "^[\241-\243][\128-\191][\128-\191][\128-\191]", 4 }, { "^\244[\128-\143][\128-\191][\128-\191]", 4 },
}

local function sequence_at(text, at)
  for _, each in ipairs(sequences) do
    if text:find(each[1], at) then return each[2] end
  end
end

--- The text with U+FFFD for every byte that is no UTF-8.
local function valid_utf8(text)
  if not text:find("[\128-\255]") then return text end
  local parts, at = {}, 1
  while at <= #text do
    local plain = text:match("^[%z\1-\127]+", at)
    local length = plain and #plain or sequence_at(text, at)
    parts[#parts + 1] = length and text:sub(at, at + length - 1) or "\239\191\189"
    at = at + (length or 1)
  end
  return table.concat(parts)
end

--- Any value as text of a page, also inside quotes. Control characters become spaces, but for line ends and tabs.
function M.escape(value)
  local text = valid_utf8(tostring(value):gsub("[%z\1-\8\11\12\14-\31\127]", " "))
  return (text:gsub("[&<>\"']", marks))
end

--- An element with escaped text.
-- @tparam string name "p", or with classes: "p.note"
function M.text(name, value) return M.element(name, M.escape(value)) end

--- An element with content that is HTML already.
function M.element(name, content)
  local tag, classes = name:match("^(%w+)%.(.+)$")
  tag = tag or name
  return ("<%s%s>%s</%s>"):format(tag, classes and (' class="%s"'):format(classes:gsub("%.", " ")) or "", content, tag)
end

--- A list of texts.
function M.list(items)
  return M.element("ul", table.concat(lists.map(items, function(item) return M.text("li", item) end)))
end

--- Columns and rows as a table; numbers stand to the right.
-- @tparam[opt] function class of a row's index: the class of that row
-- @tparam[opt] string unit of all numbers, where the titles do not say it
function M.table(columns, rows, class, unit)
  local has_numbers = lists.map(columns, function(_, c)
    return #lists.select(rows, function(row) return type(row[c]) == "number" end) > 0
  end)
  local function cell(value, c)
    local is_number = type(value) == "number" or value == nil and has_numbers[c]
    local tag = c == 1 and 'th scope="row"' or "td"
    local text = M.escape(text_table.cell_text(value, unit or columns[c]))
    return ("<%s%s>%s</%s>"):format(tag, is_number and ' class="n"' or "", text, tag:match("^%w+"))
  end
  local head = table.concat(lists.map(columns, function(title, c)
    return ('<th scope="col"%s>%s</th>'):format(has_numbers[c] and ' class="n"' or "", M.escape(title))
  end))
  local lines = lists.map(rows, function(row, r)
    local name = class and class(r)
    return ("<tr%s>%s</tr>"):format(name and (' class="%s"'):format(M.escape(name)) or "",
      table.concat(lists.map(columns, function(_, c) return cell(row[c], c) end)))
  end)
  return ('<div class="wide"><table><thead><tr>%s</tr></thead>\n<tbody>%s</tbody></table></div>'):format(head, table.concat(lines, "\n"))
end

return M
