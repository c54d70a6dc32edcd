--- What marks look like, by their classes: as rules of a style sheet (reports, SVG files) and as plain values (PDF). A colour is the
-- name of a ground's colour or an index of the palette.
local colors = require "moonshard.svg.colors"
local lists = require "moonshard.lists"

local M = {}

--- Colours besides the palette, on light and on dark ground.
M.light = { paper = "#ffffff", ink = "#1a1a1a", quiet = "#5a5a5a", line = "#dedede" }
M.dark = { paper = "#17191e", ink = "#e6e6e6", quiet = "#a0a4ab", line = "#34383f" }

--- Size of text in pixels.
M.text_size = 11.5

-- In the order of their rules. Paths without a fill are lines.
local classes = {
  { "v", size = 10 }, -- values beside marks
  { "f", size = 10, fill = 1, halo = "paper" }, -- words on points that failed
  { "q", size = 10.5, fill = "quiet" }, -- notes and titles of panels
  { "n", size = 15, bold = true }, -- the title of a figure
  { "g", stroke = "line", width = 0.7 }, -- grid
  { "a", stroke = "quiet", width = 1 }, -- axes
  { "w", stroke = "ink", width = 1 }, -- whiskers
  { "t", stroke = "ink", width = 1.2 }, -- sums of stacks
  { "l", width = 2 }, -- lines of series
  { "d", stroke = "quiet", width = 1.2, dash = { 5, 4 } }, -- references
  { "x", stroke = 1, width = 2 }, -- points that failed
  { "m", stroke = "paper", width = 0.8, fill = "ink" }, -- markers
  { "h", stroke = 1, width = 1, hatch = 1 }, -- bars and cells that failed
  { "b0", fill = "ink", opacity = 0.05 }, { "b1" }, -- bands
}
local by_class = {}
for _, each in ipairs(classes) do by_class[each[1]] = each end
for i = 0, #colors.light - 1 do by_class["s" .. i], by_class["l" .. i] = { fill = i }, { stroke = i } end

--- What some classes together ask for; later ones win.
-- @tparam string names "l l3"
-- @treturn table stroke, width, fill, dash, hatch, opacity; of text size, fill, halo, bold
function M.of(names)
  local look = {}
  for name in (names or ""):gmatch("%S+") do look = lists.merged(look, by_class[name]) end
  return look
end

--- A colour as "#rrggbb".
-- @tparam string theme light or dark
function M.color(color, theme)
  if type(color) == "number" then return "#" .. colors[theme][color + 1] end
  return M[theme][color]
end

--- Rules of a style sheet. Colours are its variables: see M.variables.
function M.rules(font)
  local function named(color) return type(color) == "number" and ("var(--c%d)"):format(color) or ("var(--%s)"):format(color) end
  local parts = { ("svg text{font:%gpx %s;fill:var(--ink)}"):format(M.text_size, font) }
  for _, look in ipairs(classes) do
    local rule = {}
    local function add(form, value) rule[#rule + 1] = value and form:format(value) or nil end
    add("font-size:%gpx", look.size)
    add("font-weight:%s", look.bold and "bold")
    add("fill:%s", look.hatch and "url(#hatch)" or look.fill and named(look.fill) or not look.size and "none")
    add("stroke:%s", look.stroke and named(look.stroke))
    add("stroke-width:%g", look.width)
    add("stroke-dasharray:%s", look.dash and table.concat(look.dash, " "))
    add("opacity:%g", look.opacity)
    add("paint-order:stroke;stroke:%s;stroke-width:3px", look.halo and named(look.halo))
    parts[#parts + 1] = ("svg .%s{%s}"):format(look[1], table.concat(rule, ";"))
  end
  for i = 0, #colors.light - 1 do parts[#parts + 1] = ("svg .s%d{fill:var(--c%d)}svg .l%d{stroke:var(--c%d)}"):format(i, i, i, i) end
  return table.concat(parts, "\n")
end

--- The variables that the rules use, for one ground.
function M.variables(theme)
  local parts = lists.map(colors[theme], function(color, i) return ("--c%d:#%s"):format(i - 1, color) end)
  for _, name in ipairs(lists.keys(M[theme])) do parts[#parts + 1] = ("--%s:%s"):format(name, M[theme][name]) end
  return table.concat(parts, ";")
end

--- The hatching that the rules name, as a definition.
M.hatching = '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
  .. '<path d="M0 0V6" style="stroke:var(--c1);stroke-width:2"/></pattern>'

return M
