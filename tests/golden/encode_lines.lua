--- What a tokenizer makes of text, for make_tokenizers.py --fuzz, which compares it with the reference.
-- Inputs: a tokenizer.json; texts, one per line, their bytes in hexadecimal digits.
-- Outputs: for each a line "ids, separated by blanks|what they decode to without special tokens", the latter in digits, too.
-- Run: moonshard run tests/golden/encode_lines.lua tokenizer.json < texts
local ms = require "moonshard"
local tokenizer = ms.tokenizer(arg[1])

for line in io.lines() do
  local ids = tokenizer:encode((line:gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end)))
  local text = tokenizer:decode(ids, { skip_special = true })
  print(table.concat(ids, " ") .. "|" .. text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end
