--- A plot spec as HTML: one SVG per panel, which stand side by side where there is room, and a legend above them. What the viewer
-- draws with ImPlot for pictures, this draws for pages: nothing but text, no script, colours from the page's style sheet.
local bars = require "moonshard.svg.bars"
local colors = require "moonshard.svg.colors"
local curves = require "moonshard.svg.curves"
local heat_map = require "moonshard.svg.heat_map"
local html = require "moonshard.html"
local lists = require "moonshard.lists"
local specs = require "moonshard.svg.spec"

local M = {}

local draw = { bars = bars.draw, stacked_bars = bars.draw, lines = curves.draw, scatter = curves.draw, stacked_area = curves.draw_area,
  heat_map = heat_map.draw }

local narrow, single, widest = 480, 640, 1040

--- Room for the marks of a panel: many bars need more.
local function width_of(panel, is_alone)
  local least = is_alone and single or narrow
  if panel.kind ~= "bars" and panel.kind ~= "stacked_bars" or panel.horizontal then return least end
  local places, slots = #(panel.x.categories or {}), panel.kind == "bars" and #panel.series or 1
  return math.max(least, math.min(widest, 60 + places * (8 * slots + 6)))
end

--- Names of some panels' series that a legend tells apart; none where there are not two.
function M.legend_names(panels)
  local shown = lists.select(panels, function(panel) return panel.kind ~= "heat_map" end)
  local _, names = colors.of_figure(shown)
  return #names > 1 and names or {}
end

local function legend_of(panels, index)
  local names = M.legend_names(panels)
  if #names == 0 then return "" end
  local items = lists.map(names, function(name)
    return ('<li><i class="k%d"></i>%s</li>'):format(index[name], html.escape(name))
  end)
  return html.element("ul.legend", table.concat(items))
end

--- Whether one legend serves all panels: no two have quite different series, and no colour means two things.
function M.share_legend(panels, index, names)
  if #panels == 1 then return true end
  local used = {}
  for _, name in ipairs(names) do
    if used[index[name]] then return false end
    used[index[name]] = true
  end
  local first = lists.set(lists.column(panels[1].series, "name"))
  for _, panel in ipairs(panels) do
    local common = lists.select(panel.series, function(series) return first[series.name] end)
    if #common == 0 and #panel.series > 0 then return false end
  end
  return true
end

--- The marks of a panel in their frame.
-- @tparam table index of colours by the names of series
-- @treturn Frame
function M.frame(panel, index, width, height)
  local frame = draw[panel.kind](panel, index, width, height)
  local is_upright = (panel.kind == "bars" or panel.kind == "stacked_bars") and not panel.horizontal
  if is_upright then curves.draw_references(frame, panel, index) end
  return frame
end

--- Draws a figure.
-- @tparam table given a plot spec, checked or not
-- @treturn string a figure element
function M.draw(given)
  local spec = specs.read(given)
  local index, names = colors.of_figure(spec.panels)
  local is_shared = M.share_legend(spec.panels, index, names)
  local panels = lists.map(spec.panels, function(panel)
    local width = width_of(panel, #spec.panels == 1)
    local frame = M.frame(panel, index, width, #spec.panels == 1 and 380 or 320)
    local title = panel.title ~= "" and html.text("div.name", panel.title) or ""
    local legend = is_shared and "" or legend_of({ panel }, index)
    return ('<div class="panel" style="width:%dpx">%s%s%s</div>'):format(math.ceil(frame.width), title, legend,
      frame:finish(spec.title .. (panel.title ~= "" and ", " .. panel.title or "")))
  end)
  return ("<figure><figcaption>%s</figcaption>%s<div class=\"panels\">%s</div>%s</figure>"):format(html.escape(spec.title),
    is_shared and legend_of(spec.panels, index) or "", table.concat(panels, "\n"), spec.note ~= "" and html.text("p.note", spec.note) or "")
end

return M
