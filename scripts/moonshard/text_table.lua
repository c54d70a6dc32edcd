--- Aligned text tables, and the same as Markdown.
local M = {}

local function cell_text(value)
  if value == nil then return "-" end
  if type(value) ~= "number" then return (tostring(value):gsub("%s*\n%s*", " ")) end
  if value == math.floor(value) and math.abs(value) < 1e15 then return ("%d"):format(value) end
  local magnitude = math.abs(value)
  if magnitude >= 1e15 then return ("%.3g"):format(value) end
  if magnitude >= 100 then return ("%.1f"):format(value) end
  if magnitude >= 1 then return ("%.2f"):format(value) end
  return ("%.3g"):format(value)
end

--- Number of screen columns of UTF-8 text.
local function width_of(text)
  local _, continuation = text:gsub("[\128-\191]", "")
  return #text - continuation
end

local function pad(text, width, right)
  local space = (" "):rep(width - width_of(text))
  return right and space .. text or text .. space
end

--- A table of texts from columns and rows.
-- @tparam {string,...} columns titles
-- @tparam {table,...} rows each a list of values; numbers are right-aligned
-- @treturn string text that ends without a newline
function M.format(columns, rows)
  local widths, numeric, cells = {}, {}, {}
  for c, title in ipairs(columns) do
    widths[c], numeric[c] = width_of(title), true
  end
  for r, row in ipairs(rows) do
    cells[r] = {}
    for c = 1, #columns do
      local text = cell_text(row[c])
      cells[r][c] = text
      widths[c] = math.max(widths[c], width_of(text))
      if row[c] ~= nil and type(row[c]) ~= "number" then numeric[c] = false end
    end
  end
  local lines, titles, rules = {}, {}, {}
  for c, title in ipairs(columns) do
    titles[c] = pad(title, widths[c], numeric[c])
    rules[c] = ("-"):rep(widths[c])
  end
  lines[1] = table.concat(titles, "  ")
  lines[2] = table.concat(rules, "  ")
  for r = 1, #rows do
    local parts = {}
    for c = 1, #columns do parts[c] = pad(cells[r][c], widths[c], numeric[c]) end
    lines[#lines + 1] = (table.concat(parts, "  "):gsub("%s+$", ""))
  end
  return table.concat(lines, "\n")
end

--- The same as a Markdown table.
function M.markdown(columns, rows)
  local function line(values)
    local parts = {}
    for c = 1, #columns do parts[c] = (cell_text(values[c]):gsub("|", "\\|")) end
    return "| " .. table.concat(parts, " | ") .. " |"
  end
  local rules = {}
  for c = 1, #columns do rules[c] = "---" end
  local lines = { line(columns), "| " .. table.concat(rules, " | ") .. " |" }
  for _, row in ipairs(rows) do lines[#lines + 1] = line(row) end
  return table.concat(lines, "\n")
end

return M
