--- SVG's path language as PDF's: both have move, line and close; relative steps and single coordinates become lines.
local M = {}

local takes = { m = 2, l = 2, h = 1, v = 1, z = 0 }

--- Operators of a path.
-- @tparam string d of M, L, H, V, Z and their relative forms
-- @treturn string
function M.operators(d)
  local parts, x, y, start_x, start_y = {}, 0, 0, 0, 0
  for letter, rest in d:gmatch("(%a)([^%a]*)") do
    local kind, is_relative, numbers = letter:lower(), letter:match("%l") ~= nil, {}
    for number in rest:gmatch("%-?[%d.]+") do numbers[#numbers + 1] = tonumber(number) end
    local count = assert(takes[kind], "unknown path command " .. letter)
    if kind == "z" then
      parts[#parts + 1], x, y = "h", start_x, start_y
    end
    for at = 1, count > 0 and #numbers or 0, math.max(count, 1) do
      local first, second = numbers[at], numbers[at + 1]
      if kind == "h" then
        x = is_relative and x + first or first
      elseif kind == "v" then
        y = is_relative and y + first or first
      else
        x, y = is_relative and x + first or first, is_relative and y + second or second
      end
      local is_move = kind == "m" and at == 1
      if is_move then start_x, start_y = x, y end
      parts[#parts + 1] = ("%.2f %.2f %s"):format(x, y, is_move and "m" or "l")
    end
  end
  return table.concat(parts, "\n")
end

--- A circle of four cubic curves.
function M.circle(x, y, radius)
  local k = 0.5523 * radius -- the quarter circle's control points
  local parts = { ("%.2f %.2f m"):format(x + radius, y) }
  for _, q in ipairs { { 1, 0, 0, 1 }, { 0, 1, -1, 0 }, { -1, 0, 0, -1 }, { 0, -1, 1, 0 } } do
    local ax, ay, bx, by = x + q[1] * radius, y + q[2] * radius, x + q[3] * radius, y + q[4] * radius
    parts[#parts + 1] = ("%.2f %.2f %.2f %.2f %.2f %.2f c"):format(ax + q[3] * k, ay + q[4] * k, bx + q[1] * k, by + q[2] * k, bx, by)
  end
  return table.concat(parts, "\n") .. "\nh"
end

return M
