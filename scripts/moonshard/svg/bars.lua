--- Bars, side by side or stacked, upright or lying, with whiskers; a point without a figure is a hatched stub with its status.
local frames = require "moonshard.svg.frame"
local scales = require "moonshard.svg.scale"

local M = {}

--- Names of the places; without categories every distinct x becomes one.
local function places_of(panel)
  if panel.x.categories then return panel.x.categories, function(x) return x end end
  local seen, values = {}, {}
  for _, series in ipairs(panel.series) do
    for _, point in ipairs(series.points) do
      if point.x and not seen[point.x] then
        seen[point.x], values[#values + 1] = true, point.x
      end
    end
  end
  table.sort(values)
  local names = {}
  for i, value in ipairs(values) do seen[value], names[i] = i - 1, scales.number_text(value) end
  return names, function(x) return seen[x] end
end

--- Boxes of all points: place and slot, ends of the bar, and what it says. Stacks share a slot.
local function boxes_of(panel, index_of)
  local boxes, slots, slot_of, tops = {}, 0, {}, {}
  local stacked = panel.kind == "stacked_bars"
  for s, series in ipairs(panel.series) do
    local key = stacked and "stack " .. series.stack or s
    if not slot_of[key] then slot_of[key], slots = slots, slots + 1 end
    for _, point in ipairs(series.points) do
      local place = point.x and index_of(point.x)
      if place then
        local at = ("%s/%s"):format(key, place)
        local from = stacked and tops[at] or 0
        if stacked and point.y then tops[at] = from + point.y end
        -- A stack is marked as failed once, not once per part.
        local is_repeat = stacked and not point.y and tops[at .. "failed"]
        if stacked and not point.y then tops[at .. "failed"] = true end
        if not is_repeat then
          boxes[#boxes + 1] = { place = place, slot = slot_of[key], from = from, to = point.y and from + point.y, point = point,
            series = series }
        end
      end
    end
  end
  return boxes, math.max(slots, 1)
end

local function range_of(panel, boxes)
  local low, high, least = 0, 0, math.huge
  for _, box in ipairs(boxes) do
    for _, value in ipairs { box.to or 0, box.point.low or 0, box.point.high or 0 } do
      low, high = math.min(low, value), math.max(high, value)
      if value > 0 then least = math.min(least, value) end
    end
  end
  for _, reference in ipairs(panel.references) do
    for _, value in ipairs(reference.y) do low, high = math.min(low, value), math.max(high, value) end
  end
  if panel.y.scale == "log" and least < math.huge then low = 10 ^ math.floor(math.log10(least)) end
  -- Room for the values at the ends of bars.
  if panel.y.scale ~= "log" then low, high = low * 1.05, high * 1.05 end
  return low, high > low and high or low + 1
end

--- A bar between two places along its length, at a place across it.
local function draw_box(frame, box, color, along, across, thick, is_lying)
  local point = box.point
  local hint = frames.hint(box.series.name, point.label, box.to and scales.number_text(point.y) or point.status)
  local function rectangle(from, to, class)
    local low, size = math.min(from, to), math.max(math.abs(to - from), 0.5)
    frame:add("rect", class, is_lying and { x = low, y = across, width = size, height = thick, hint = hint }
      or { x = across, y = low, width = thick, height = size, hint = hint })
  end
  if not box.to then
    local base = along(math.max(0, frame.low))
    local hangs = not is_lying and base - 16 < frame.top  -- all figures are negative: the axis is at the top
    rectangle(base, base + ((is_lying or hangs) and 16 or -16), "h")
    if is_lying then
      frame:write(base + 20, across + thick / 2 + 4, "start", point.status, "f")
    else
      frame:write(across + thick / 2 + 4, base + (hangs and 20 or -20), hangs and "end" or "start", point.status, "f", { angle = -90 })
    end
    return
  end
  rectangle(along(math.max(box.from, frame.low)), along(box.to), "s" .. color)
  if point.low and point.high and not is_lying then
    local middle, arm = across + thick / 2, math.min(thick / 4, 5)
    frame:path("w", "M%.1f %.1fV%.1fM%.1f %.1fh%.1fM%.1f %.1fh%.1f", middle, along(point.low), along(point.high),
      middle - arm, along(point.low), 2 * arm, middle - arm, along(point.high), 2 * arm)
  end
end

local function draw_upright(panel, colors, width, height)
  local names, index_of = places_of(panel)
  local boxes, slots = boxes_of(panel, index_of)
  local low, high = range_of(panel, boxes)
  panel.x.categories = names
  local frame = frames.new(panel, { width = width, height = height, y = { low, high } })
  frame.low = panel.y.scale == "log" and low or -math.huge
  local thick = math.min(frame.place * 0.8 / slots, 60)
  local shows_values = panel.kind == "bars" and thick >= 24
  for _, box in ipairs(boxes) do
    local across = frame.x(box.place) + (box.slot - slots / 2) * thick
    draw_box(frame, box, colors[box.series.name], frame.y, across, math.max(thick - 1, 1), false)
    if shows_values and box.to then
      local end_of_bar = math.min(frame.y(box.to), frame.y(box.point.high or box.to)) - 4
      frame:write(across + thick / 2, box.to < 0 and frame.y(box.to) + 11 or end_of_bar, "middle", scales.number_text(box.point.y),
        "v")
    end
  end
  return frame
end

--- Categories from top to bottom, their names at the left.
local function draw_lying(panel, colors, width)
  local names, index_of = places_of(panel)
  local boxes, slots = boxes_of(panel, index_of)
  local low, high = range_of(panel, boxes)
  local longest = 1
  names = frames.what_differs(names)
  for _, name in ipairs(names) do longest = math.max(longest, math.min(frames.letters(name), 34)) end
  local row = math.max(18, 12 * slots)
  local frame = frames.bare(width, 10 + row * #names + 38)
  frame.low = -math.huge
  frame.left, frame.right = math.min(longest * frames.letter + 10, width * 0.5), width - 26
  local scale = scales.new(panel.y, low, high, 5)
  local function along(value) return frame.left + scale.share(value) * (frame.right - frame.left) end
  local bottom = 10 + row * #names
  for _, tick in ipairs(scale.ticks) do
    frame:path("g", "M%.1f 10V%.1f", along(tick), bottom)
    frame:write(along(tick), bottom + 14, "middle", scales.number_text(tick))
  end
  for i, name in ipairs(names) do
    frame:write(frame.left - 6, 10 + row * (i - 0.5) + 4, "end", frames.cut(name, math.floor((frame.left - 8) / frames.letter)), nil,
      { hint = name })
  end
  local thick = row * 0.8 / slots
  for _, box in ipairs(boxes) do
    draw_box(frame, box, colors[box.series.name], along, 10 + row * (box.place + 0.1) + box.slot * thick, thick, true)
  end
  frame:write((frame.left + frame.right) / 2, bottom + 32, "middle", frames.title_of(panel.y))
  frame:path("a", "M%.1f 10V%.1f", along(math.max(0, scale.low)), bottom)
  return frame
end

--- Draws a panel of bars.
-- @tparam table colors index by the name of a series
-- @treturn Frame
function M.draw(panel, colors, width, height)
  if panel.horizontal then return draw_lying(panel, colors, width) end
  return draw_upright(panel, colors, width, height)
end

return M
