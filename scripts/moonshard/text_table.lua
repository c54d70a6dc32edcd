--- Tables of values as aligned text, Markdown, LaTeX and CSV. Numbers get the digits that matter in the first
-- three; CSV keeps all of them.
local native = require "moonshard.native"

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

local latex_marks = { ["\\"] = "\\textbackslash{}", ["&"] = "\\&", ["%"] = "\\%", ["$"] = "\\$", ["#"] = "\\#", ["_"] = "\\_",
  ["{"] = "\\{", ["}"] = "\\}", ["~"] = "\\textasciitilde{}", ["^"] = "\\textasciicircum{}" }

local function latex_text(value) return (cell_text(value):gsub("[\\&%%$#_{}~^]", latex_marks)) end

--- The same as a LaTeX tabular with the rules of booktabs.
function M.latex(columns, rows)
  local shape, titles = {}, {}
  for c, title in ipairs(columns) do
    shape[c], titles[c] = "r", latex_text(title)
    for _, row in ipairs(rows) do
      if row[c] ~= nil and type(row[c]) ~= "number" then shape[c] = "l" end
    end
  end
  local lines = { "% needs \\usepackage{booktabs}", ("\\begin{tabular}{%s}"):format(table.concat(shape)), "\\toprule",
    table.concat(titles, " & ") .. " \\\\", "\\midrule" }
  for _, row in ipairs(rows) do
    local parts = {}
    for c = 1, #columns do parts[c] = latex_text(row[c]) end
    lines[#lines + 1] = table.concat(parts, " & ") .. " \\\\"
  end
  lines[#lines + 1] = "\\bottomrule"
  lines[#lines + 1] = "\\end{tabular}"
  return table.concat(lines, "\n")
end

--- The same as CSV: numbers whole, a missing value empty.
function M.csv(columns, rows)
  local texts = {}
  for r, row in ipairs(rows) do
    texts[r] = {}
    for c = 1, #columns do
      local value = row[c]
      if type(value) == "number" then
        texts[r][c] = value == math.floor(value) and math.abs(value) < 2 ^ 53 and ("%d"):format(value) or ("%.17g"):format(value)
      else
        texts[r][c] = value == nil and "" or tostring(value)
      end
    end
  end
  return native.files.to_csv(columns, texts)
end

local Table = {}
Table.__index = Table

--- Text of the whole: title, table, notes.
function Table:__tostring()
  local parts = { M.format(self.columns, self.rows) }
  if self.title then table.insert(parts, 1, self.title .. "\n") end
  for _, note in ipairs(self.notes or {}) do parts[#parts + 1] = note end
  return table.concat(parts, "\n")
end

--- The table in a format of other programs.
-- @tparam string format text, md, latex, csv or json
-- @treturn string that ends with a newline
function Table:to(format)
  if format == "json" then
    local list = {}
    for r, row in ipairs(self.rows) do
      list[r] = {}
      for c, column in ipairs(self.columns) do list[r][column] = row[c] end
    end
    return native.records.to_json { title = self.title, columns = self.columns, rows = list, notes = self.notes }
  end
  local makers = { text = M.format, md = M.markdown, latex = M.latex, csv = M.csv }
  local text = makers[format](self.columns, self.rows)
  return text:match("\n$") and text or text .. "\n"
end

--- A table that prints itself: what an analysis returns.
-- @tparam table parts columns, rows, title, notes; any other field is kept
function M.new(parts) return setmetatable(parts, Table) end

return M
