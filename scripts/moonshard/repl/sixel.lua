--- Pictures as sixels: bands of six rows, in each one line of characters per colour. Colours are those of a cube of 6 x 6 x 6, which is
-- enough for charts.
local png = require "moonshard.repl.png"

local M = {}

local LEVELS = 6
-- Terminals do not say how wide a character is; most are near this.
local PIXELS_PER_COLUMN = 9

-- Mean colour of squares of `step` pixels, as indices into the cube. Transparent pixels are white: charts are drawn on it.
local function reduced(picture, step)
  local channels, pixels = picture.channels, picture.pixels
  local width, height = math.floor(picture.width / step), math.floor(picture.height / step)
  local rows = {}
  for y = 0, height - 1 do
    local row = {}
    for x = 0, width - 1 do
      local red, green, blue = 0, 0, 0
      for dy = 0, step - 1 do
        for dx = 0, step - 1 do
          local at = ((y * step + dy) * picture.width + x * step + dx) * channels
          local alpha = (channels == 4 and pixels[at + 3] or channels == 2 and pixels[at + 1] or 255) / 255
          local is_grey = channels < 3
          red = red + pixels[at] * alpha + 255 * (1 - alpha)
          green = green + pixels[is_grey and at or at + 1] * alpha + 255 * (1 - alpha)
          blue = blue + pixels[is_grey and at or at + 2] * alpha + 255 * (1 - alpha)
        end
      end
      local scale = (LEVELS - 1) / (255 * step * step)
      row[x] = (math.floor(red * scale + 0.5) * LEVELS + math.floor(green * scale + 0.5)) * LEVELS + math.floor(blue * scale + 0.5)
    end
    rows[y] = row
  end
  return rows, width, height
end

local function run_of(char, count) return count > 3 and ("!%d%s"):format(count, char) or char:rep(count) end

-- One colour's line of a band.
local function line_of(rows, first, height, width, colour)
  local parts, last, count = { ("#%d"):format(colour) }, nil, 0
  for x = 0, width - 1 do
    local bits, value = 0, 1
    for y = first, math.min(first + 5, height - 1) do
      if rows[y][x] == colour then bits = bits + value end
      value = value * 2
    end
    local char = string.char(63 + bits)
    if char ~= last and last then
      parts[#parts + 1] = run_of(last, count)
      count = 0
    end
    last, count = char, count + 1
  end
  parts[#parts + 1] = run_of(last, count)
  return table.concat(parts)
end

--- A PNG file as text for a terminal that knows sixel.
-- @tparam string data the file's bytes
-- @tparam number columns of the terminal
-- @treturn string text; nil for a file that cannot be read
-- @treturn string what is wrong with it
function M.of_png(data, columns)
  local ok, picture = pcall(png.decode, data)
  if not ok then return nil, picture end
  local step = math.max(1, math.ceil(picture.width / (columns * PIXELS_PER_COLUMN)))
  local rows, width, height = reduced(picture, step)
  local parts = { ('\27Pq"1;1;%d;%d'):format(width, height) }
  local percent = 100 / (LEVELS - 1)
  for colour = 0, LEVELS ^ 3 - 1 do
    parts[#parts + 1] = ("#%d;2;%d;%d;%d"):format(colour, math.floor(colour / LEVELS ^ 2) * percent,
      math.floor(colour / LEVELS) % LEVELS * percent, colour % LEVELS * percent)
  end
  for first = 0, height - 1, 6 do
    local used, lines = {}, {}
    for y = first, math.min(first + 5, height - 1) do
      for x = 0, width - 1 do used[rows[y][x]] = true end
    end
    for colour = 0, LEVELS ^ 3 - 1 do
      if used[colour] then lines[#lines + 1] = line_of(rows, first, height, width, colour) end
    end
    parts[#parts + 1] = table.concat(lines, "$") .. "-"
  end
  return table.concat(parts) .. "\27\\\n"
end

return M
