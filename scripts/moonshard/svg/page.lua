--- A plot spec as one page of marks: title, legend, panels in rows and columns, note. What SVG and PDF files are made from.
local colors = require "moonshard.svg.colors"
local elements = require "moonshard.svg.elements"
local figure = require "moonshard.svg.figure"
local fonts = require "moonshard.pdf.fonts"
local frames = require "moonshard.svg.frame"
local html = require "moonshard.html"
local looks = require "moonshard.svg.looks"
local specs = require "moonshard.svg.spec"

local M = {}

local edge, gap, line, swatch = 14, 16, 17, 10
-- The widths of text are known for this family and those made to its measures.
local family = "Helvetica,Arial,'Liberation Sans',Arimo,sans-serif"
local least_panel = 160

local Page = {}
Page.__index = Page

function Page:add(mark) self.marks[#self.marks + 1] = mark end

--- Lines of a text that are at most so wide.
local function wrapped(text, width, size, is_bold)
  local rows = { "" }
  for word in text:gmatch("%S+") do
    local longer = rows[#rows] == "" and word or rows[#rows] .. " " .. word
    if fonts.width(longer, size, is_bold) <= width or rows[#rows] == "" then rows[#rows] = longer else rows[#rows + 1] = word end
  end
  return rows
end

--- Writes a text below what is there.
function Page:paragraph(text, class)
  if text == "" then return end
  local look = looks.of(class)
  for _, row in ipairs(wrapped(text, self.width - 2 * edge, look.size, look.bold)) do
    self.bottom = self.bottom + look.size * 1.3
    self:add { kind = "text", class = class, x = edge, y = self.bottom - look.size * 0.3, anchor = "start", text = row }
  end
end

--- Swatches and names in lines as wide as there is room.
-- @treturn {table,...} marks
-- @treturn number height
local function legend(names, index, width)
  local marks, x, y = {}, 0, 0
  for _, name in ipairs(names) do
    local text = frames.cut(name, 60)
    local size = swatch + 5 + fonts.width(text, looks.text_size)
    if x > 0 and x + size > width then x, y = 0, y + line end
    marks[#marks + 1] = { kind = "rect", class = "s" .. index[name], x = x, y = y + 3, width = swatch, height = swatch }
    marks[#marks + 1] = { kind = "text", x = x + swatch + 5, y = y + 12, anchor = "start", text = text }
    x = x + size + gap
  end
  return marks, #names > 0 and y + line + 4 or 0
end

--- A panel with its title and, where panels share none, its legend.
local function block(panel, index, width, height, has_legend)
  local marks, top = {}, 0
  if panel.title ~= "" then
    marks[1] = { kind = "text", class = "q", x = 0, y = 11, anchor = "start", text = frames.cut(panel.title, math.floor(width / 5.6)) }
    top = 17
  end
  if has_legend then
    local swatches, size = legend(figure.legend_names { panel }, index, width)
    marks[#marks + 1] = { kind = "group", x = 0, y = top, marks = swatches }
    top = top + size
  end
  local frame = figure.frame(panel, index, width, math.max(least_panel, height - top))
  marks[#marks + 1] = { kind = "group", x = 0, y = top, marks = frame.marks }
  return { marks = marks, width = frame.width, height = top + frame.height }
end

--- Lays out a figure.
-- @tparam table given a plot spec, checked or not
-- @tparam[opt="light"] string theme light or dark
-- @treturn table width, height, marks, title, theme
function M.new(given, theme)
  local spec = specs.read(given)
  local page = setmetatable({ width = spec.width, bottom = edge / 2, marks = {}, title = spec.title, theme = theme or "light" }, Page)
  local index, names = colors.of_figure(spec.panels)
  local is_shared = figure.share_legend(spec.panels, index, names)
  page:paragraph(spec.title, "n")
  page.bottom = page.bottom + 6
  local inner = page.width - 2 * edge
  if is_shared then
    local swatches, size = legend(figure.legend_names(spec.panels), index, inner)
    page:add { kind = "group", x = edge, y = page.bottom, marks = swatches }
    page.bottom = page.bottom + size
  end
  local rows = math.ceil(#spec.panels / spec.columns)
  local note_room = spec.note ~= "" and 20 or 0
  local width = (inner - gap * (spec.columns - 1)) / spec.columns
  local height = (spec.height - page.bottom - note_room - edge) / rows - gap
  for first = 1, #spec.panels, spec.columns do
    local tallest = 0
    for c = 0, math.min(spec.columns, #spec.panels - first + 1) - 1 do
      local made = block(spec.panels[first + c], index, width, height, not is_shared)
      page:add { kind = "group", x = edge + c * (width + gap), y = page.bottom, marks = made.marks }
      tallest = math.max(tallest, made.height)
    end
    page.bottom = page.bottom + tallest + gap
  end
  page:paragraph(spec.note, "q")
  page.height = math.ceil(page.bottom + edge / 2)
  table.insert(page.marks, 1, { kind = "rect", fill = looks.color("paper", page.theme), x = 0, y = 0, width = page.width,
    height = page.height })
  return page
end

--- A page as the text of an SVG file, with all that it needs.
function M.svg(page)
  local sheet = ("svg{%s}\n%s"):format(looks.variables(page.theme), looks.rules(family))
  return ('<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" '
    .. 'role="img" aria-label="%s">\n<style>%s</style>\n<defs>%s</defs>\n%s\n</svg>\n'):format(page.width, page.height, page.width,
    page.height, html.escape(page.title), sheet, looks.hatching, elements.of(page.marks))
end

return M
