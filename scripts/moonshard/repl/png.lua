--- Pixels of a PNG file, for terminals that take pixels and not files. Reads what the viewer writes: 8 bits per channel, grey, RGB or
-- RGBA, not interlaced. Sizes are checked before memory is taken; a damaged file is an error, never a crash.
local ffi = require "ffi"

local M = {}

local MOST_PIXELS = 2 ^ 25
local CHANNELS = { [0] = 1, [2] = 3, [4] = 2, [6] = 4 }

local LENGTH_BASE = { 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258 }
local LENGTH_BITS = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 }
local DISTANCE_BASE = { 1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145,
  8193, 12289, 16385, 24577 }
local DISTANCE_BITS = { 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13 }
local CODE_ORDER = { 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15 }

-- Canonical Huffman codes (RFC 1951, 3.2.2): how many codes there are of each length, and the symbols in their order.
local function huffman(lengths, n)
  local counts, offsets, symbols = {}, {}, {}
  for length = 0, 15 do counts[length] = 0 end
  for i = 0, n - 1 do counts[lengths[i]] = counts[lengths[i]] + 1 end
  counts[0] = 0
  offsets[1] = 0
  for length = 1, 14 do offsets[length + 1] = offsets[length] + counts[length] end
  for i = 0, n - 1 do
    local length = lengths[i]
    if length > 0 then
      symbols[offsets[length]] = i
      offsets[length] = offsets[length] + 1
    end
  end
  return { counts = counts, symbols = symbols }
end

local Reader = {}
Reader.__index = Reader

function Reader:bits(count)
  while self.held < count do
    if self.at > self.size then error("png: expected more data, got the end", 0) end
    self.value = self.value + bit.lshift(self.data[self.at - 1], self.held)
    self.at, self.held = self.at + 1, self.held + 8
  end
  local taken = bit.band(self.value, bit.lshift(1, count) - 1)
  self.value, self.held = bit.rshift(self.value, count), self.held - count
  return taken
end

function Reader:symbol(codes)
  local code, first, index, counts = 0, 0, 0, codes.counts
  for length = 1, 15 do
    code = code + self:bits(1)
    local count = counts[length]
    if code - count < first then return codes.symbols[index + code - first] end
    index, first = index + count, (first + count) * 2
    code = code * 2
  end
  error("png: expected a Huffman code, got damaged data", 0)
end

local function fixed_codes()
  local lengths, distances = {}, {}
  for i = 0, 287 do lengths[i] = i < 144 and 8 or i < 256 and 9 or i < 280 and 7 or 8 end
  for i = 0, 29 do distances[i] = 5 end
  return huffman(lengths, 288), huffman(distances, 30)
end

local function read_codes(reader)
  local num_lengths, num_distances, num_codes = reader:bits(5) + 257, reader:bits(5) + 1, reader:bits(4) + 4
  local lengths = {}
  for i = 0, 18 do lengths[i] = 0 end
  for i = 1, num_codes do lengths[CODE_ORDER[i]] = reader:bits(3) end
  local codes, all, n = huffman(lengths, 19), {}, 0
  while n < num_lengths + num_distances do
    local symbol, value, times = reader:symbol(codes), 0, 1
    if symbol < 16 then
      value = symbol
    elseif symbol == 16 then
      value, times = all[n - 1] or error("png: expected a length to repeat, got none", 0), reader:bits(2) + 3
    else
      times = symbol == 17 and reader:bits(3) + 3 or reader:bits(7) + 11
    end
    for _ = 1, times do
      all[n] = value
      n = n + 1
    end
  end
  local distances = {}
  for i = 0, num_distances - 1 do distances[i] = all[num_lengths + i] or 0 end
  return huffman(all, num_lengths), huffman(distances, num_distances)
end

-- Inflates a zlib stream into exactly `size` bytes.
local function inflate(data, size)
  local reader = setmetatable({ data = ffi.cast("const uint8_t*", data), size = #data, at = 3, value = 0, held = 0 }, Reader)
  local out, n = ffi.new("uint8_t[?]", size), 0
  local function put(byte)
    if n >= size then error("png: expected fewer pixels, got more", 0) end
    out[n] = byte
    n = n + 1
  end
  repeat
    local is_last, kind = reader:bits(1), reader:bits(2)
    if kind == 0 then
      reader.value, reader.held = 0, 0
      local length = reader:bits(16)
      reader:bits(16)
      for _ = 1, length do put(reader:bits(8)) end
    else
      if kind == 3 then error("png: expected a kind of block, got a reserved one", 0) end
      local codes, distances
      if kind == 1 then codes, distances = fixed_codes() else codes, distances = read_codes(reader) end
      while true do
        local symbol = reader:symbol(codes)
        if symbol == 256 then break end
        if symbol < 256 then
          put(symbol)
        else
          local length = (LENGTH_BASE[symbol - 256] or error("png: damaged length", 0)) + reader:bits(LENGTH_BITS[symbol - 256])
          local code = reader:symbol(distances) + 1
          local distance = (DISTANCE_BASE[code] or error("png: damaged distance", 0)) + reader:bits(DISTANCE_BITS[code])
          if distance > n then error("png: expected a distance within the data, got a larger one", 0) end
          for _ = 1, length do put(out[n - distance]) end
        end
      end
    end
  until is_last == 1
  if n < size then error("png: expected more pixels, got the end", 0) end
  return out
end

-- Takes the filters of the rows back, in place.
local function unfilter(raw, width, height, channels)
  local stride = width * channels
  local pixels = ffi.new("uint8_t[?]", stride * height)
  for row = 0, height - 1 do
    local kind, from, to, above = raw[row * (stride + 1)], row * (stride + 1) + 1, row * stride, (row - 1) * stride
    for i = 0, stride - 1 do
      local left = i >= channels and pixels[to + i - channels] or 0
      local up = row > 0 and pixels[above + i] or 0
      local corner = row > 0 and i >= channels and pixels[above + i - channels] or 0
      local guess = 0
      if kind == 1 then
        guess = left
      elseif kind == 2 then
        guess = up
      elseif kind == 3 then
        guess = math.floor((left + up) / 2)
      elseif kind == 4 then
        local estimate = left + up - corner
        local a, b, c = math.abs(estimate - left), math.abs(estimate - up), math.abs(estimate - corner)
        guess = (a <= b and a <= c) and left or b <= c and up or corner
      end
      pixels[to + i] = bit.band(raw[from + i] + guess, 255)
    end
  end
  return pixels
end

local function number(data, at)
  local a, b, c, d = data:byte(at, at + 3)
  if not d then error("png: expected a whole file, got a part of one", 0) end
  return ((a * 256 + b) * 256 + c) * 256 + d
end

--- Decodes a file.
-- @tparam string data its bytes
-- @treturn table width, height, channels, pixels (bytes from 0, row by row)
-- @raise what is wrong with it
function M.decode(data)
  if data:sub(1, 8) ~= "\137PNG\r\n\26\n" then error("png: expected a PNG file, got something else", 0) end
  local at, parts, width, height, channels = 9, {}, nil, nil, nil
  while at <= #data do
    local length, kind = number(data, at), data:sub(at + 4, at + 7)
    local body = at + 8
    if kind == "IHDR" then
      width, height = number(data, body), number(data, body + 4)
      local depth, color, _, _, interlace = data:byte(body + 8, body + 12)
      channels = depth == 8 and interlace == 0 and CHANNELS[color]
      if not channels then error("png: expected 8 bits per channel without palette and interlacing, got another kind", 0) end
      if width < 1 or height < 1 or width * height > MOST_PIXELS then error("png: expected a picture of fewer pixels", 0) end
    elseif kind == "IDAT" then
      parts[#parts + 1] = data:sub(body, body + length - 1)
    elseif kind == "IEND" then
      break
    end
    at = body + length + 4
  end
  if not width then error("png: expected a header, got none", 0) end
  local raw = inflate(table.concat(parts), (width * channels + 1) * height)
  return { width = width, height = height, channels = channels, pixels = unfilter(raw, width, height, channels) }
end

return M
