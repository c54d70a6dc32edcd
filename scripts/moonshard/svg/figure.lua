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

--- Names and colours of some panels' series; empty where there is nothing to tell apart.
local function legend_of(panels, index)
  local shown = lists.select(panels, function(panel) return panel.kind ~= "heat_map" end)
  local _, names = colors.of_figure(shown)
  if #names < 2 then return "" end
  local items = lists.map(names, function(name)
    return ('<li><i class="k%d"></i>%s</li>'):format(index[name], html.escape(name))
  end)
  return html.element("ul.legend", table.concat(items))
end

--- Whether one legend serves all panels: no two have quite different series, and no colour means two things.
local function share_legend(panels, index, names)
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

--- Draws a figure.
-- @tparam table given a plot spec, checked or not
-- @treturn string a figure element
function M.draw(given)
  local spec = specs.read(given)
  local index, names = colors.of_figure(spec.panels)
  local is_shared = #spec.panels == 1 or share_legend(spec.panels, index, names)
  local panels = lists.map(spec.panels, function(panel)
    local width = width_of(panel, #spec.panels == 1)
    local frame = draw[panel.kind](panel, index, width, #spec.panels == 1 and 380 or 320)
    if panel.kind == "bars" or panel.kind == "stacked_bars" then
      if not panel.horizontal then curves.draw_references(frame, panel, index) end
    end
    local title = panel.title ~= "" and html.text("div.name", panel.title) or ""
    local legend = is_shared and "" or legend_of({ panel }, index)
    return ('<div class="panel" style="width:%dpx">%s%s%s</div>'):format(math.ceil(frame.width), title, legend,
      frame:finish(spec.title .. (panel.title ~= "" and ", " .. panel.title or "")))
  end)
  return ("<figure><figcaption>%s</figcaption>%s<div class=\"panels\">%s</div>%s</figure>"):format(html.escape(spec.title),
    is_shared and legend_of(spec.panels, index) or "", table.concat(panels, "\n"), spec.note ~= "" and html.text("p.note", spec.note) or "")
end

return M
