--- Heat maps: a row per series, a column per category, the value of every cell written in it.
local colors = require "moonshard.svg.colors"
local frames = require "moonshard.svg.frame"
local scales = require "moonshard.svg.scale"

local M = {}

local function range_of(panel)
  local low, high = math.huge, -math.huge
  for _, series in ipairs(panel.series) do
    for _, point in ipairs(series.points) do
      if point.y then low, high = math.min(low, point.y), math.max(high, point.y) end
    end
  end
  low, high = panel.value.min or low, panel.value.max or high
  if high <= low then return 0, 1 end
  return low, high
end

--- Draws a heat map.
-- @treturn Frame
function M.draw(panel, _, width)
  local names = panel.x.categories or {}
  local low, high = range_of(panel)
  local longest = 1
  for _, series in ipairs(panel.series) do longest = math.max(longest, math.min(frames.letters(series.name), 24)) end
  local has_label = panel.y.label ~= ""
  local left, cell = longest * frames.letter + (has_label and 28 or 12), 34
  local place = math.min((width - left - 10) / math.max(#names, 1), 90)
  local frame = frames.bare(width, 10 + cell * #panel.series + 58)
  for r, series in ipairs(panel.series) do
    local top = 10 + cell * (r - 1)
    frame:write(left - 6, top + cell / 2 + 4, "end", frames.cut(series.name, 24))
    for _, point in ipairs(series.points) do
      if point.x and point.x >= 0 and point.x < #names then
        local x, hint = left + place * point.x, frames.hint(series.name, names[point.x + 1], point.y and "" or point.status)
        if point.y then
          local fill, is_dark = colors.heat_at((point.y - low) / (high - low))
          frame:add("rect", nil, { x = x, y = top, width = place - 2, height = cell - 2, fill = fill, hint = hint })
          frame:write(x + place / 2 - 1, top + cell / 2 + 4, "middle", scales.number_text(point.y), nil,
            { fill = is_dark and "#ffffff" or "#1a1a1a" })
        else
          frame:add("rect", "h", { x = x, y = top, width = place - 2, height = cell - 2, hint = hint })
          frame:write(x + place / 2 - 1, top + cell / 2 + 4, "middle", point.status, "f")
        end
      end
    end
  end
  local bottom = 10 + cell * #panel.series
  for c, name in ipairs(names) do
    frame:write(left + place * (c - 0.5), bottom + 13, "middle", frames.cut(name, math.max(3, math.floor(place / frames.letter))))
  end
  frame:write(left + place * #names / 2, bottom + 30, "middle", frames.title_of(panel.x))
  if has_label then
    frame:write(12, (10 + bottom) / 2, "middle", frames.cut(panel.y.label, math.floor((bottom + 20) / frames.letter)), nil,
      { angle = -90 })
  end
  frame:write(left, bottom + 50, "start", ("%s, colours from %s to %s"):format(frames.title_of(panel.value), scales.number_text(low),
    scales.number_text(high)))
  return frame
end

return M
