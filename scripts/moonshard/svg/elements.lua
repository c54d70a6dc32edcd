--- Marks as SVG elements. A mark is a table: kind ("path", "rect", "circle", "text"), class, hint (text under the mouse), and
--   path    d, in SVG's own language
--   rect    x, y, width, height; fill instead of a class
--   circle  x, y, radius
--   text    x, y, text, anchor (start, middle, end), angle in degrees, fill
--   group   x, y, marks: others, moved there
-- frame.lua and page.lua make them; moonshard.pdf.document draws the same ones.
local html = require "moonshard.html"
local lists = require "moonshard.lists"

local M = {}

local function attribute(name, value) return value and value ~= "" and (' %s="%s"'):format(name, value) or "" end

local function hint_of(mark) return (mark.hint or "") ~= "" and ("<title>%s</title>"):format(html.escape(mark.hint)) or "" end

local makers = {}

function makers.path(mark)
  local hint = hint_of(mark)
  return ('<path%s d="%s"%s'):format(attribute("class", mark.class), mark.d, hint == "" and "/>" or (">%s</path>"):format(hint))
end

function makers.rect(mark)
  return ('<rect%s x="%.1f" y="%.1f" width="%.1f" height="%.1f"%s>%s</rect>'):format(attribute("class", mark.class), mark.x, mark.y,
    mark.width, mark.height, attribute("fill", mark.fill), hint_of(mark))
end

function makers.circle(mark)
  return ('<circle%s cx="%.1f" cy="%.1f" r="%g">%s</circle>'):format(attribute("class", mark.class), mark.x, mark.y, mark.radius,
    hint_of(mark))
end

function makers.text(mark)
  local place = mark.angle and ('transform="translate(%.1f %.1f) rotate(%g)"'):format(mark.x, mark.y, mark.angle)
    or ('x="%.1f" y="%.1f"'):format(mark.x, mark.y)
  return ('<text %s%s%s%s>%s%s</text>'):format(place, attribute("text-anchor", mark.anchor), attribute("class", mark.class),
    attribute("style", mark.fill and "fill:" .. mark.fill), html.escape(mark.text), hint_of(mark))
end

function makers.group(mark) return ('<g transform="translate(%.1f %.1f)">\n%s\n</g>'):format(mark.x, mark.y, M.of(mark.marks)) end

--- Elements of marks, a line each.
function M.of(marks)
  return table.concat(lists.map(marks, function(mark) return makers[mark.kind](mark) end), "\n")
end

return M
