--- A page of marks (svg/elements.lua) as a PDF file: vectors and text, uncompressed, no font embedded. The same page gives the same bytes.
local fonts = require "moonshard.pdf.fonts"
local looks = require "moonshard.svg.looks"
local paths = require "moonshard.pdf.paths"

local M = {}

-- Points per pixel of a page.
local scale = 0.75

local function rgb(color)
  local red, green, blue = color:match("^#(%x%x)(%x%x)(%x%x)$")
  return ("%.3f %.3f %.3f"):format(tonumber(red, 16) / 255, tonumber(green, 16) / 255, tonumber(blue, 16) / 255)
end

local Content = {}
Content.__index = Content

function Content:say(form, ...) self.parts[#self.parts + 1] = form:format(...) end

function Content:color(color) return rgb(type(color) == "string" and color:match("^#") and color or looks.color(color, self.theme)) end

--- A state with this opacity, by the name that the page's resources give it.
function Content:opacity(value)
  local name = ("O%d"):format(math.floor(value * 1000 + 0.5))
  self.opacities[name] = value
  self:say("/%s gs", name)
end

--- Diagonal strokes in a box, and its edge.
function Content:hatch(mark, look)
  local x, y, w, h = mark.x, mark.y, mark.width, mark.height
  self:say("q %.2f %.2f %.2f %.2f re W n %s RG 2 w", x, y, w, h, self:color(look.hatch))
  for shift = -h, w, 8 do self:say("%.2f %.2f m %.2f %.2f l S", x + shift, y + h, x + shift + h, y) end
  self:say("Q")
end

--- Fills and strokes a shape as its classes ask for.
function Content:paint(mark, operators)
  local look = looks.of(mark.class)
  local fill, stroke = mark.fill or look.fill, look.stroke
  if look.hatch then self:hatch(mark, look) end
  if not fill and not stroke then return end
  self:say("q")
  if look.opacity then self:opacity(look.opacity) end
  if fill then self:say("%s rg", self:color(fill)) end
  if stroke then self:say("%s RG %g w 1 j", self:color(stroke), look.width or 1) end
  if look.dash then self:say("[%s] 0 d", table.concat(look.dash, " ")) end
  self:say("%s", operators)
  self:say(fill and stroke and "B" or fill and "f" or "S")
  self:say("Q")
end

local function escaped(bytes)
  return (bytes:gsub("[\\()]", "\\%0"):gsub("[%c\128-\255]", function(byte) return ("\\%03o"):format(byte:byte()) end))
end

function Content:text(mark)
  local look = looks.of(mark.class)
  local size = look.size or looks.text_size
  local width = fonts.width(mark.text, size, look.bold)
  local shift = mark.anchor == "middle" and -width / 2 or mark.anchor == "end" and -width or 0
  local angle = math.rad(mark.angle or 0)
  local cos, sin = math.cos(angle), math.sin(angle)
  -- The page's y grows downwards, letters stand upright: the matrix turns them over again.
  local matrix = ("%.4f %.4f %.4f %.4f %.2f %.2f Tm"):format(cos, sin, sin, -cos, mark.x + cos * shift, mark.y + sin * shift)
  local words = {}
  for i, piece in ipairs(fonts.pieces(mark.text)) do
    words[i] = ("/%s %g Tf (%s) Tj"):format(piece.is_symbol and "S" or look.bold and "B" or "H", size, escaped(piece.bytes))
  end
  local shown = table.concat(words, " ")
  if look.halo then
    self:say("q BT 1 Tr 3 w 1 j %s RG %s %s ET Q", self:color(look.halo), matrix, shown)
  end
  self:say("BT %s rg %s %s ET", self:color(mark.fill or look.fill or "ink"), matrix, shown)
end

local draw = {
  path = function(content, mark) content:paint(mark, paths.operators(mark.d)) end,
  circle = function(content, mark) content:paint(mark, paths.circle(mark.x, mark.y, mark.radius)) end,
  rect = function(content, mark) content:paint(mark, ("%.2f %.2f %.2f %.2f re"):format(mark.x, mark.y, mark.width, mark.height)) end,
  text = Content.text,
}

local function group(content, marks)
  for _, mark in ipairs(marks) do
    if mark.kind == "group" then
      content:say("q 1 0 0 1 %.2f %.2f cm", mark.x, mark.y)
      group(content, mark.marks)
      content:say("Q")
    else
      draw[mark.kind](content, mark)
    end
  end
end

--- The title as UTF-16 in hexadecimal digits, as PDF has texts about a document.
local function title_text(text)
  local units = { "FEFF" }
  for character in text:gmatch("[%z\1-\127\194-\239][\128-\191]*") do
    local first, second, third = character:byte(1, 3)
    local code = third and (first - 224) * 4096 + (second - 128) * 64 + third - 128 or second and (first - 192) * 64 + second - 128 or first
    units[#units + 1] = ("%04X"):format(code % 65536)
  end
  return ("<%s>"):format(table.concat(units))
end

local function states(opacities)
  local names, parts = {}, {}
  for name in pairs(opacities) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = ("/%s << /ca %g /CA %g >>"):format(name, opacities[name], opacities[name]) end
  return table.concat(parts, " ")
end

--- The bytes of a PDF file.
-- @tparam table page width and height in pixels, marks, title, theme
function M.of_page(page)
  local width, height = page.width * scale, page.height * scale
  local content = setmetatable({ parts = {}, theme = page.theme, opacities = {} }, Content)
  content:say("%g 0 0 %g 0 %.2f cm", scale, -scale, height)
  group(content, page.marks)
  local stream = table.concat(content.parts, "\n")
  local function font(name, encoding)
    return ("<< /Type /Font /Subtype /Type1 /BaseFont /%s%s >>"):format(name, encoding and " /Encoding /WinAnsiEncoding" or "")
  end
  local objects = {
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    ("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %.2f %.2f] /Contents 4 0 R /Resources << /Font << /H 5 0 R /B 6 0 R /S 7 0 R >> "
      .. "/ExtGState << %s >> >> >>"):format(width, height, states(content.opacities)),
    ("<< /Length %d >>\nstream\n%s\nendstream"):format(#stream, stream),
    font("Helvetica", true), font("Helvetica-Bold", true), font("Symbol"),
    ("<< /Title %s /Producer (moonshard) >>"):format(title_text(page.title)),
  }
  local parts, at = { "%PDF-1.4\n%\226\227\207\211\n" }, {}
  local length = #parts[1]
  for i, object in ipairs(objects) do
    at[i] = length
    parts[#parts + 1] = ("%d 0 obj\n%s\nendobj\n"):format(i, object)
    length = length + #parts[#parts]
  end
  parts[#parts + 1] = ("xref\n0 %d\n0000000000 65535 f \n"):format(#objects + 1)
  for _, offset in ipairs(at) do parts[#parts + 1] = ("%010d 00000 n \n"):format(offset) end
  parts[#parts + 1] = ("trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"):format(#objects + 1, #objects, length)
  return table.concat(parts)
end

return M
