--- The frame of a panel: its size, margins, axes with ticks and labels, and the functions from values to places. Marks are added
-- by bars.lua, curves.lua and heat_map.lua. What is drawn are marks (elements.lua); their colours are classes (looks.lua).
local elements = require "moonshard.svg.elements"
local html = require "moonshard.html"
local lists = require "moonshard.lists"
local scales = require "moonshard.svg.scale"

local M = {}
local Frame = {}
Frame.__index = Frame

--- Width of a letter, about; the fonts of other machines are not known.
M.letter = 6.3
local line_height, least_place = 13, 13

--- A narrow screen shrinks a picture to this share and lets it scroll beyond that: smaller text could not be read.
local least_shown = 0.75

--- Number of letters of UTF-8 text.
function M.letters(text) return #(text:gsub("[\128-\191]", "")) end

--- The text with at most so many letters: an ellipsis stands for the middle, since names often differ at their ends.
function M.cut(text, most)
  if M.letters(text) <= most then return text end
  local letters = lists.matches(text, "[%z\1-\127\194-\244][\128-\191]*")
  local head = math.floor((most - 1) / 2)
  local tail = most - 1 - head
  return table.concat(letters, "", 1, head) .. "…" .. table.concat(letters, "", #letters - tail + 1)
end

--- Names without the parts that all of them share at the same place: "zero2, batch 2" and "zero2, batch 4" are batches.
function M.what_differs(names)
  local split = lists.map(names, function(name) return lists.matches(name, "[^,]+") end)
  if #split < 2 then return names end
  local is_shared = lists.map(split[1], function(part, p)
    for _, parts in ipairs(split) do
      if parts[p] ~= part or #parts ~= #split[1] then return false end
    end
    return true
  end)
  if not lists.contains(is_shared, true) or not lists.contains(is_shared, false) then return names end
  return lists.map(split, function(parts)
    local kept = {}
    for p, part in ipairs(parts) do
      if not is_shared[p] then kept[#kept + 1] = part:gsub("^%s+", "") end
    end
    return table.concat(kept, ", ")
  end)
end

function M.title_of(axis)
  if axis.unit == "" then return axis.label end
  return ("%s [%s]"):format(axis.label, axis.unit)
end

--- Adds a mark.
function Frame:add(kind, class, mark)
  mark.kind, mark.class = kind, class
  self.marks[#self.marks + 1] = mark
end

--- Adds a path of a form and its numbers.
function Frame:path(class, form, ...) self:add("path", class, { d = form:format(...) }) end

--- Adds text at a place.
-- @tparam string anchor start, middle or end
-- @tparam[opt] string class
-- @tparam[opt] table more angle, fill, hint
function Frame:write(x, y, anchor, text, class, more)
  self:add("text", class, lists.merged(more, { x = x, y = y, anchor = anchor, text = text }))
end

--- Adds a small text beside a mark, moved up or down until it covers no other one; left out where there is no room at all.
function Frame:write_beside(x, y, anchor, text)
  if text == "" then return end
  local width = M.letters(text) * M.letter * 0.9
  local left = anchor == "end" and x - width or anchor == "middle" and x - width / 2 or x
  self.taken = self.taken or {}
  local function is_free(at)
    for _, box in ipairs(self.taken) do
      if left < box[2] and left + width > box[1] and math.abs(at - box[3]) < 10 then return false end
    end
    return true
  end
  for _, shift in ipairs { 0, -11, 11, -22, 22, 33 } do
    if is_free(y + shift) and y + shift > 9 then
      self.taken[#self.taken + 1] = { left, left + width, y + shift }
      self:write(x, y + shift, anchor, text, "v")
      return
    end
  end
end

--- What a mark says under the mouse.
function M.hint(...)
  local parts = {}
  for i = 1, select("#", ...) do
    local part = select(i, ...)
    if part and part ~= "" then parts[#parts + 1] = part end
  end
  return table.concat(parts, ": ")
end

--- Lines of a category's name at most so wide, broken at spaces and behind underscores; nil where that does not do.
local function wrapped(name, letters, most_lines)
  local lines = { "" }
  for word in name:gmatch("[^%s_]*_?") do
    local is_joined = lines[#lines] == "" or lines[#lines]:match("_$")
    local longer = word == "" and lines[#lines] or lines[#lines] .. (is_joined and "" or " ") .. word
    if M.letters(longer) <= letters then
      lines[#lines] = longer
    elseif lines[#lines] == "" or M.letters(word) > letters then
      return nil
    else
      lines[#lines + 1] = word
    end
  end
  return #lines <= most_lines and lines or nil
end

--- How category names are written: lines of each, or slanted; and how high they are.
local function plan_names(names, place)
  local all, most, longest = {}, 1, 0
  for i, name in ipairs(names) do
    all[i] = all and wrapped(name, math.floor(place / M.letter), 3)
    if not all[i] then
      for _, each in ipairs(names) do longest = math.max(longest, math.min(M.letters(each), 30)) end
      return { slanted = true, height = longest * M.letter * 0.62 + 14, overhang = longest * M.letter * 0.78 }
    end
    most = math.max(most, #all[i])
  end
  return { lines = all, height = most * line_height + 6 }
end

local function write_names(frame, names, plan, place)
  local every = math.max(1, math.ceil(least_place / place))
  for i, name in ipairs(names) do
    local x = frame.left + (i - 0.5) * place
    if plan.slanted then
      if (i - 1) % every == 0 then
        frame:write(x + 4, frame.bottom + 13, "end", M.cut(name, 30), nil, { angle = -38, hint = name })
      end
    else
      for l, line in ipairs(plan.lines[i]) do frame:write(x, frame.bottom + 2 + l * line_height, "middle", line) end
    end
  end
end

local function draw_y_axis(frame, y)
  for _, tick in ipairs(frame.y_scale.ticks) do
    local at = frame.y(tick)
    frame:path("g", "M%.1f %.1fH%.1f", frame.left, at, frame.right)
    frame:write(frame.left - 5, at + 4, "end", scales.number_text(tick))
  end
  local middle = (frame.top + frame.bottom) / 2
  frame:write(12, middle, "middle", M.cut(M.title_of(y), math.floor((frame.bottom - frame.top + 40) / M.letter)), nil, { angle = -90 })
end

local function draw_x_numbers(frame)
  local last
  for _, tick in ipairs(frame.x_scale.ticks) do
    local at, text = frame.x(tick), scales.number_text(tick)
    local half = M.letters(text) * M.letter / 2
    frame:path("g", "M%.1f %.1fV%.1f", at, frame.top, frame.bottom)
    if not last or at - half > last + 4 then
      frame:write(at, frame.bottom + 15, "middle", text)
      last = at + half
    end
  end
end

--- A frame with a numeric or categorical x axis below and a numeric y axis at the left.
-- @tparam table panel as svg.spec gives it
-- @tparam table ask width, height, x (low, high; nil for categories), y (low, high), top (room above the plot),
-- x_ticks (instead of round numbers)
function M.new(panel, ask)
  local names = not ask.x and panel.x.categories and M.what_differs(panel.x.categories) or nil
  local frame = setmetatable({ marks = {}, width = ask.width }, Frame)
  local y_scale = scales.new(panel.y, ask.y[1], ask.y[2], 5)
  local widest = 1
  for _, tick in ipairs(y_scale.ticks) do widest = math.max(widest, M.letters(scales.number_text(tick))) end
  frame.left, frame.right, frame.top = 28 + widest * M.letter, ask.width - 18, ask.top or 10
  local place = names and (frame.right - frame.left) / math.max(#names, 1)
  local plan = names and plan_names(names, place) or { height = 20 }
  if plan.overhang then
    frame.left = math.max(frame.left, math.min(plan.overhang - place / 2 + 4, ask.width * 0.25))
    place = (frame.right - frame.left) / math.max(#names, 1)
  end
  frame.height = ask.height + math.max(0, plan.height - 20)
  frame.bottom = frame.height - plan.height - (panel.x.label ~= "" and 18 or 4)
  frame.y_scale, frame.place = y_scale, place
  function frame.y(value)
    local share = math.max(-0.02, math.min(1.02, y_scale.share(value)))
    return frame.bottom - share * (frame.bottom - frame.top)
  end
  draw_y_axis(frame, panel.y)
  if names then
    function frame.x(index) return frame.left + (index + 0.5) * place end
    write_names(frame, names, plan, place)
  else
    -- The ends are the data's: rounding them up would leave a fifth of the width empty.
    frame.x_scale = scales.new(lists.merged({ min = ask.x[1], max = ask.x[2] }, panel.x), ask.x[1], ask.x[2], 6)
    frame.x_scale.ticks = ask.x_ticks or frame.x_scale.ticks
    function frame.x(value) return frame.left + frame.x_scale.share(value) * (frame.right - frame.left) end
    draw_x_numbers(frame)
  end
  frame:write((frame.left + frame.right) / 2, frame.height - 5, "middle", M.title_of(panel.x))
  frame:path("a", "M%.1f %.1fV%.1fH%.1f", frame.left, frame.top, frame.bottom, frame.right)
  return frame
end

--- A frame without axes, for panels that draw their own.
function M.bare(width, height) return setmetatable({ marks = {}, width = width, height = height }, Frame) end

--- The whole as an SVG element.
function Frame:finish(name)
  local width, height = math.ceil(self.width), math.ceil(self.height)
  return ('<svg viewBox="0 0 %d %d" width="%d" height="%d" style="min-width:%dpx" role="img" aria-label="%s">%s</svg>'):format(width,
    height, width, height, width * least_shown, html.escape(name), elements.of(self.marks))
end

return M
