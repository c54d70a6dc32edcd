--- Text in the fonts that every reader of PDF has: Helvetica with the letters of Windows' code page, Symbol for Greek and some signs.
-- Widths are those of Adobe's metrics for these fonts, in thousandths of the size.
local M = {}

-- From the space to the tilde, then the letters of Latin-1 from U+00A0 on.
local ascii = { 278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556, 556,
  556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722,
  667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833,
  556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584 }
local latin = { 278, 333, 556, 556, 556, 556, 260, 556, 333, 737, 370, 556, 584, 333, 737, 333, 400, 584, 333, 333, 333, 556, 537, 278,
  333, 333, 365, 556, 834, 834, 834, 611, 667, 667, 667, 667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278, 278, 278, 722, 722, 778,
  778, 778, 778, 778, 584, 778, 722, 722, 722, 722, 667, 667, 611, 556, 556, 556, 556, 556, 556, 889, 500, 556, 556, 556, 556, 278, 278,
  278, 278, 556, 556, 556, 556, 556, 556, 556, 584, 611, 556, 556, 556, 556, 500, 556, 500 }

-- By the character: the byte in its font, its width, and whether the font is Symbol.
local glyphs = {}
local function letter(code)
  if code < 0x80 then return string.char(code) end
  if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
  return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end
for i, width in ipairs(ascii) do glyphs[letter(31 + i)] = { 31 + i, width } end
for i, width in ipairs(latin) do glyphs[letter(159 + i)] = { 159 + i, width } end
for _, each in ipairs {
  { 0x20AC, 0x80, 556 }, { 0x2026, 0x85, 1000 }, { 0x2018, 0x91, 222 }, { 0x2019, 0x92, 222 }, { 0x201C, 0x93, 333 },
  { 0x201D, 0x94, 333 }, { 0x201E, 0x84, 333 }, { 0x2022, 0x95, 350 }, { 0x2013, 0x96, 556 }, { 0x2014, 0x97, 1000 },
  { 0x2020, 0x86, 556 }, { 0x2030, 0x89, 1000 }, { 0x2122, 0x99, 1000 }, { 0x0160, 0x8A, 667 }, { 0x0161, 0x9A, 500 },
  { 0x017D, 0x8E, 611 }, { 0x017E, 0x9E, 500 }, { 0x0152, 0x8C, 1000 }, { 0x0153, 0x9C, 944 }, { 0x2212, 0x96, 556 },
} do glyphs[letter(each[1])] = { each[2], each[3] } end
local greek = { 0x61, 631, 0x62, 549, 0x67, 411, 0x64, 494, 0x65, 439, 0x7A, 494, 0x68, 603, 0x71, 521, 0x69, 329, 0x6B, 549, 0x6C, 549,
  0x6D, 576, 0x6E, 521, 0x78, 493, 0x6F, 549, 0x70, 549, 0x72, 549, 0x56, 439, 0x73, 603, 0x74, 439, 0x75, 576, 0x66, 521, 0x63, 549,
  0x79, 686, 0x77, 686 }
for i = 0, #greek / 2 - 1 do glyphs[letter(0x3B1 + i)] = { greek[2 * i + 1], greek[2 * i + 2], true } end
for _, each in ipairs { { 0x0394, 0x44, 612 }, { 0x03A3, 0x53, 592 }, { 0x03A9, 0x57, 768 }, { 0x2264, 0xA3, 549 }, { 0x2265, 0xB3, 549 },
  { 0x2248, 0xBB, 549 }, { 0x221E, 0xA5, 713 }, { 0x2192, 0xAE, 987 }, { 0x2190, 0xAC, 987 }, { 0x221A, 0xD6, 549 }, { 0x2211, 0xE5, 713 },
} do glyphs[letter(each[1])] = { each[2], each[3], true } end

-- Bold letters are wider; by how much on average of English text.
local bold_share = 1.07

--- Pieces of a text by font; a character that neither font has is a question mark.
-- @tparam string text UTF-8; broken sequences are question marks, too
-- @treturn {table,...} each { bytes, is_symbol }
function M.pieces(text)
  local list = {}
  for character in text:gmatch("[%z\1-\127\192-\255]?[\128-\191]*") do
    if character ~= "" then
      local glyph = glyphs[character] or glyphs[character:find("^%c$") and " " or "?"]
      local last, is_symbol = list[#list], glyph[3] == true
      if not last or last.is_symbol ~= is_symbol then
        last = { bytes = "", is_symbol = is_symbol }
        list[#list + 1] = last
      end
      last.bytes = last.bytes .. string.char(glyph[1])
    end
  end
  return list
end

--- Width of a text.
function M.width(text, size, is_bold)
  local sum = 0
  for character in text:gmatch("[%z\1-\127\192-\255]?[\128-\191]*") do
    if character ~= "" then sum = sum + (glyphs[character] or glyphs["?"])[2] end
  end
  return sum * size / 1000 * (is_bold and bold_share or 1)
end

return M
