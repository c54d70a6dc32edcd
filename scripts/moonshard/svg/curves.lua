--- Lines, scatter plots and stacked areas, with bands, reference lines, and points that have no figure at the axis.
local frames = require "moonshard.svg.frame"
local scales = require "moonshard.svg.scale"

local M = {}

local most_marked, most_columns = 60, 300

--- Shapes by turns, so that series differ without their colours.
local shapes = {
  false, -- a circle
  "M%.1f %.1fm-4 -4h8v8h-8z",
  "M%.1f %.1fm0 -5l5 9h-10z",
  "M%.1f %.1fm0 -5.5l5.5 5.5l-5.5 5.5l-5.5 -5.5z",
}

local function draw_marker(frame, s, class, x, y, hint)
  local shape = shapes[(s - 1) % #shapes + 1]
  if shape then
    frame:add("path", class, { d = shape:format(x, y), hint = hint })
  else
    frame:add("circle", class, { x = x, y = y, radius = 4, hint = hint })
  end
end

local function each_point(panel, visit)
  for s, series in ipairs(panel.series) do
    for _, point in ipairs(series.points) do visit(point, s, series) end
  end
end

--- Smallest and largest of values that can be shown, with some air; logarithmic axes show only what is positive.
local function range(values, axis, from_zero)
  local low, high = math.huge, -math.huge
  for _, value in ipairs(values) do
    if axis.scale ~= "log" or value > 0 then low, high = math.min(low, value), math.max(high, value) end
  end
  if low > high then return 0, 1 end
  if axis.scale == "log" then return low / 1.15, high * 1.15 end
  local air = (high - low) * 0.05
  if from_zero and low >= 0 then return 0, high + math.max(high * 0.05, high == 0 and 1 or 0) end
  return low - air, high + air
end

local function ranges_of(panel)
  local x, y = {}, {}
  each_point(panel, function(point)
    x[#x + 1], y[#y + 1] = point.x, point.y
    y[#y + 1] = point.low
    y[#y + 1] = point.high
  end)
  for _, reference in ipairs(panel.references) do
    for _, value in ipairs(reference.y) do y[#y + 1] = value end
    for _, value in ipairs(reference.x) do x[#x + 1] = value end
  end
  local x_low, x_high = range(x, panel.x, panel.kind == "scatter")
  local y_low, y_high = range(y, panel.y, true)
  return not panel.x.categories and { x_low, x_high } or nil, { y_low, y_high }
end

--- The sizes that were measured, as ticks: on a logarithmic axis they say more than round numbers. Nil where there are many.
local function own_ticks(panel)
  if panel.x.scale ~= "log" or panel.kind ~= "lines" then return nil end
  local seen, ticks = {}, {}
  each_point(panel, function(point)
    if point.x and point.x > 0 and not seen[point.x] then
      seen[point.x], ticks[#ticks + 1] = true, point.x
    end
  end)
  table.sort(ticks)
  return #ticks > 0 and #ticks <= 8 and ticks or nil
end

local function path_of(frame, places)
  local parts = {}
  for i, place in ipairs(places) do parts[i] = ("%s%.1f %.1f"):format(i == 1 and "M" or "L", frame.x(place[1]), frame.y(place[2])) end
  return table.concat(parts)
end

local function draw_bands(frame, bands)
  for i, band in ipairs(bands) do
    if band.from and band.to and band.to > band.from then
      local from, to = math.max(frame.left, frame.x(band.from)), math.min(frame.right, frame.x(band.to))
      if to > from then
        frame:add("rect", "b" .. i % 2, { x = from, y = frame.top, width = to - from, height = frame.bottom - frame.top,
          hint = frames.hint(band.label) })
        if (to - from) > frames.letters(band.label) * frames.letter * 0.9 then
          frame:write((from + to) / 2, frame.top - 4, "middle", band.label, "v")
        end
      end
    end
  end
end

local function draw_references(frame, panel, colors)
  for _, reference in ipairs(panel.references) do
    local color = colors[reference.series]
    local class = color and "d l" .. color or "d"
    local x, y = reference.x, reference.y
    if #x > 1 and #x == #y then
      local places = {}
      for i = 1, #x do places[i] = { x[i], y[i] } end
      frame:path(class, "%s", path_of(frame, places))
      frame:write_beside(math.min(frame.x(x[#x]) - 2, frame.right), frame.y(y[#y]) - 6, "end", reference.text)
    elseif #y == 1 then
      frame:path(class, "M%.1f %.1fH%.1f", frame.left, frame.y(y[1]), frame.right)
      frame:write_beside(frame.right - 2, frame.y(y[1]) - 4, "end", reference.text)
    elseif #x == 1 then
      frame:path(class, "M%.1f %.1fV%.1f", frame.x(x[1]), frame.top, frame.bottom)
      frame:write_beside(frame.x(x[1]) + 3, frame.top + 12, "start", reference.text)
    end
  end
end
M.draw_references = draw_references

--- Points without a figure: a cross at the axis; those without a place are listed in the corner.
local function draw_failed(frame, panel)
  local nowhere = {}
  each_point(panel, function(point, _, series)
    if point.y and not (frame.y_scale.is_log and point.y <= 0) then return end
    if point.x and not (frame.x_scale and frame.x_scale.is_log and point.x <= 0) then
      local x, y = frame.x(point.x), frame.bottom - 7
      frame:add("path", "x", { d = ("M%.1f %.1fm-4 -4l8 8m0 -8l-8 8"):format(x, y),
        hint = frames.hint(series.name, point.label, point.status) })
      frame:write(x, y - 8, "middle", point.status, "f")
    else
      nowhere[#nowhere + 1] = ("%s: %s"):format(point.label ~= "" and point.label or series.name, point.status)
    end
  end)
  for i = 1, math.min(#nowhere, 6) do
    local text = i == 6 and #nowhere > 6 and ("and %d more"):format(#nowhere - 5) or nowhere[i]
    frame:write(frame.right - 4, frame.bottom - 6 - 13 * (math.min(#nowhere, 6) - i), "end", "× " .. frames.cut(text, 44), "f")
  end
end

local function can_show(frame, point)
  if not point.x or not point.y then return false end
  return not (frame.y_scale.is_log and point.y <= 0) and not (frame.x_scale and frame.x_scale.is_log and point.x <= 0)
end

local function draw_series(frame, panel, s, series, colors)
  local color, places = colors[series.name], {}
  local shown = {}
  for _, point in ipairs(series.points) do
    if can_show(frame, point) then
      shown[#shown + 1], places[#places + 1] = point, { point.x, point.y }
    end
  end
  if panel.kind == "lines" and #places > 1 then frame:path("l l" .. color, "%s", path_of(frame, places)) end
  if panel.kind == "lines" and #shown > most_marked then return end
  for _, point in ipairs(shown) do
    local x, y = frame.x(point.x), frame.y(point.y)
    if point.low and point.high then
      local low, high = frame.y(point.low), frame.y(point.high)
      frame:path("w l" .. color, "M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f %.1fh6", x, low, high, x - 3, low, x - 3, high)
    end
    draw_marker(frame, s, "m s" .. color, x, y,
      frames.hint(series.name, point.label, ("%s, %s"):format(scales.number_text(point.x), scales.number_text(point.y))))
    if point.text ~= "" then
      local text = frames.cut(point.text, 28)
      local near_edge = x > frame.right - frames.letters(text) * frames.letter - 8
      frame:write_beside(near_edge and x - 7 or x + 7, y - 5, near_edge and "end" or "start", text)
    end
  end
end

--- Draws lines or a scatter plot.
-- @treturn Frame
function M.draw(panel, colors, width, height)
  local x, y = ranges_of(panel)
  local frame = frames.new(panel, { width = width, height = height, x = x, y = y, top = #panel.bands > 0 and 22 or 10,
    x_ticks = own_ticks(panel) })
  draw_bands(frame, panel.bands)
  draw_references(frame, panel, colors)
  for s, series in ipairs(panel.series) do draw_series(frame, panel, s, series, colors) end
  draw_failed(frame, panel)
  return frame
end

--- Columns of a stacked area: at most so many, each the one of its stretch with the largest sum, so that peaks stay.
local function columns_of(panel)
  local first, columns = panel.series[1] and panel.series[1].points or {}, {}
  for i, point in ipairs(first) do
    if point.x then
      local column = { x = point.x, sum = 0 }
      for s, series in ipairs(panel.series) do
        column[s] = math.max(0, series.points[i] and series.points[i].y or 0)
        column.sum = column.sum + column[s]
      end
      columns[#columns + 1] = column
    end
  end
  if #columns <= most_columns then return columns end
  local kept, size = {}, #columns / most_columns
  for k = 0, most_columns - 1 do
    local best
    for i = math.floor(k * size) + 1, math.floor((k + 1) * size) do
      if not best or columns[i].sum > best.sum then best = columns[i] end
    end
    kept[#kept + 1] = best
  end
  return kept
end

--- Draws a stacked area: series from the first up, their sum as a dark line.
-- @treturn Frame
function M.draw_area(panel, colors, width, height)
  local columns, high = columns_of(panel), 0
  for _, column in ipairs(columns) do high = math.max(high, column.sum) end
  local x = #columns > 0 and { columns[1].x, columns[#columns].x } or { 0, 1 }
  panel.x.min, panel.x.max = panel.x.min or x[1], panel.x.max or x[2]
  local frame = frames.new(panel, { width = width, height = height, x = x, y = { 0, high > 0 and high or 1 },
    top = #panel.bands > 0 and 22 or 10 })
  local below = {}
  for i = 1, #columns do below[i] = 0 end
  for s, series in ipairs(panel.series) do
    local forth, back, any = {}, {}, false
    for i, column in ipairs(columns) do
      back[#columns - i + 1] = { column.x, below[i] }
      below[i] = below[i] + column[s]
      forth[i], any = { column.x, below[i] }, any or column[s] > 0
    end
    if any then
      frame:add("path", "s" .. colors[series.name], { d = path_of(frame, forth) .. path_of(frame, back):gsub("^M", "L") .. "Z",
        hint = series.name })
    end
  end
  local sums = {}
  for i, column in ipairs(columns) do sums[i] = { column.x, column.sum } end
  frame:path("t", "%s", path_of(frame, sums))
  draw_bands(frame, panel.bands)
  draw_references(frame, panel, colors)
  return frame
end

return M
