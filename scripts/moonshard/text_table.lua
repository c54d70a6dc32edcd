--- Tables of values as aligned text, Markdown, LaTeX and CSV. Numbers get the digits that matter in the first
-- three; CSV keeps all of them.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}

--- A value as tables show it, under the title of its column: sizes and shares have two decimals and no exponent.
local function cell_text(value, title)
  if value == nil then return "-" end
  if type(value) ~= "number" then return (tostring(value):gsub("%s*\n%s*", " ")) end
  if value == math.floor(value) and math.abs(value) < 1e15 then return ("%d"):format(value) end
  local magnitude = math.abs(value)
  if magnitude >= 1e15 then return ("%.3g"):format(value) end
  if magnitude >= 100 then return ("%.1f"):format(value) end
  if magnitude >= 1 or title and (title:find("[KMG]iB") or title:find("%%$")) then return ("%.2f"):format(value) end
  return ("%.3g"):format(value)
end

M.cell_text = cell_text

--- Number of screen columns of UTF-8 text.
local function width_of(text)
  local _, continuation = text:gsub("[\128-\191]", "")
  return #text - continuation
end

local function pad(text, width, right)
  local space = (" "):rep(width - width_of(text))
  return right and space .. text or text .. space
end

--- Which columns hold nothing but numbers.
local function numeric_columns(columns, rows)
  return lists.map(columns, function(_, c)
    for _, row in ipairs(rows) do
      if row[c] ~= nil and type(row[c]) ~= "number" then return false end
    end
    return true
  end)
end

--- A table of texts from columns and rows.
-- @tparam {string,...} columns titles
-- @tparam {table,...} rows each a list of values; numbers are right-aligned
-- @tparam[opt] string unit of all numbers, where the titles do not say it
-- @treturn string text that ends without a newline
function M.format(columns, rows, unit)
  local widths, numeric = {}, numeric_columns(columns, rows)
  for c, title in ipairs(columns) do
    widths[c] = width_of(title)
    for _, row in ipairs(rows) do widths[c] = math.max(widths[c], width_of(cell_text(row[c], unit or title))) end
  end
  local function line(values)
    local cells = lists.map(columns, function(title, c) return pad(cell_text(values[c], unit or title), widths[c], numeric[c]) end)
    return table.concat(cells, "  ")
  end
  local rules = lists.map(widths, function(width) return ("-"):rep(width) end)
  local lines = { line(columns), table.concat(rules, "  ") }
  for _, row in ipairs(rows) do lines[#lines + 1] = (line(row):gsub("%s+$", "")) end
  return table.concat(lines, "\n")
end

--- The same as a Markdown table.
function M.markdown(columns, rows, unit)
  local function line(values)
    local parts = lists.map(columns, function(title, c) return (cell_text(values[c], unit or title):gsub("|", "\\|")) end)
    return "| " .. table.concat(parts, " | ") .. " |"
  end
  local rules = lists.map(columns, function() return "---" end)
  return table.concat(lists.extend({ line(columns), line(rules) }, lists.map(rows, line)), "\n")
end

local latex_marks = { ["\\"] = "\\textbackslash{}", ["&"] = "\\&", ["%"] = "\\%", ["$"] = "\\$", ["#"] = "\\#", ["_"] = "\\_",
  ["{"] = "\\{", ["}"] = "\\}", ["~"] = "\\textasciitilde{}", ["^"] = "\\textasciicircum{}" }

local function latex_text(value, title) return (cell_text(value, title):gsub("[\\&%%$#_{}~^]", latex_marks)) end

--- The same as a LaTeX tabular with the rules of booktabs.
function M.latex(columns, rows, unit)
  local shape = lists.map(numeric_columns(columns, rows), function(numeric) return numeric and "r" or "l" end)
  local function line(values)
    return table.concat(lists.map(columns, function(title, c) return latex_text(values[c], unit or title) end), " & ") .. " \\\\"
  end
  local head = { "% needs \\usepackage{booktabs}", ("\\begin{tabular}{%s}"):format(table.concat(shape)), "\\toprule", line(columns),
    "\\midrule" }
  return table.concat(lists.extend(head, lists.map(rows, line), { "\\bottomrule", "\\end{tabular}" }), "\n")
end

--- The same as CSV: numbers whole, a missing value empty.
function M.csv(columns, rows)
  local function text_of(value)
    if type(value) ~= "number" then return value == nil and "" or tostring(value) end
    return value == math.floor(value) and math.abs(value) < 2 ^ 53 and ("%d"):format(value) or ("%.17g"):format(value)
  end
  return native.files.to_csv(columns, lists.map(rows, function(row)
    return lists.map(columns, function(_, c) return text_of(row[c]) end)
  end))
end

--- A number by the unit that leaves the fewest digits: with_unit(7.5e9, { "", " k", " M", " G" }) is "7.5 G".
-- @tparam[opt=1000] number base how many of a unit make the next
function M.with_unit(number, units, base)
  base = base or 1000
  local unit = 1
  while number >= base and unit < #units do
    number, unit = number / base, unit + 1
  end
  return ("%.4g%s"):format(number, units[unit])
end

local Table = {}
Table.__index = Table
M.class = Table

--- Text of the whole: title, table, notes.
function Table:__tostring()
  local parts = lists.extend({ M.format(self.columns, self.rows, self.unit) }, self.notes or {})
  if self.title then table.insert(parts, 1, self.title .. "\n") end
  return table.concat(parts, "\n")
end

--- The table in a format of other programs.
-- @tparam string format text, md, latex, csv or json
-- @treturn string that ends with a newline
function Table:to(format)
  if format == "json" then
    local rows = lists.map(self.rows, function(row)
      local named = {}
      for c, column in ipairs(self.columns) do named[column] = row[c] end
      return named
    end)
    return native.records.to_json { title = self.title, columns = self.columns, rows = rows, notes = self.notes }
  end
  local makers = { text = M.format, md = M.markdown, latex = M.latex, csv = M.csv }
  local text = makers[format](self.columns, self.rows, self.unit)
  return text:match("\n$") and text or text .. "\n"
end

--- A table that prints itself: what an analysis returns.
-- @tparam table parts columns, rows, title, notes, unit (of all numbers); any other field is kept
function M.new(parts) return setmetatable(parts, Table) end

--- Columns and rows of points: the axes of their sweep, then figures.
-- @tparam {string,...} titles of the figures
-- @tparam function figures of a point and its index: as many values as there are titles, in a list that may have holes
-- @tparam[opt] function axis_value of a point and an axis; without it the effective option
function M.of_points(results, points, titles, figures, axis_value)
  local rows = lists.map(points, function(point, r)
    local row, values, n = {}, figures(point, r), #results.axes
    for i, axis in ipairs(results.axes) do row[i] = axis_value and axis_value(point, axis) or point.options[axis] end
    for i = 1, #titles do row[n + i] = values[i] end
    return row
  end)
  return lists.extend({}, results.axes, titles), rows
end

return M
