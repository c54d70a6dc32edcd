--- Sample text for document 002, which trains on data/sample_data.txt: paragraphs from a small grammar, and a byte-level BPE
-- tokenizer trained on them. Both are made where they are missing, always the same, so that nothing has to be shipped or fetched.
local native = require "moonshard.native"

local M = {}

--- Bytes of text, and merges of the tokenizer: with the 256 bytes and the end of text still below every preset's vocabulary.
M.text_bytes, M.merges = 2 ^ 21, 500

local subjects = { "the model", "a small network", "the optimizer", "one rank", "the scheduler", "every worker", "the reader",
  "a long sequence", "the gradient", "this experiment", "the cluster", "a careful engineer", "the second layer", "the profiler" }
local verbs = { "waits for", "measures", "keeps", "shards", "gathers", "sends", "clips", "repeats", "explains", "compares", "predicts",
  "remembers", "divides", "collects" }
local objects = { "the parameters", "a batch of samples", "its neighbours", "the memory of a step", "the noise", "two thousand tokens",
  "the next unit", "an old result", "the learning rate", "the activations", "a table of figures", "the slowest link", "the whole state",
  "the first answer" }
local endings = { "before the step ends", "without a copy", "in the background", "once per epoch", "on every device",
  "as the document says", "for the third time", "while others compute", "until memory is short", "and writes it down" }
local joints = { "; then ", ", and ", ", although ", ". ", ". ", ". " }

--- Lehmer's generator, as in analyze/statistics: the same text on every machine.
local function generator(seed)
  local state = seed
  return function(list)
    state = state * 48271 % 2147483647
    return list[math.floor(state / 2147483647 * #list) + 1]
  end
end

local function sentence(draw)
  return ("%s %s %s %s"):format(draw(subjects), draw(verbs), draw(objects), draw(endings))
end

local function capital(text) return (text:gsub("^%l", string.upper)) end

--- Paragraphs of together at least that many bytes.
function M.text(bytes)
  local draw, parts, size = generator(20261116), {}, 0
  while size < bytes do
    local paragraph = capital(sentence(draw))
    for _ = 1, 7 do
      local joint = draw(joints)
      local next_one = sentence(draw)
      paragraph = paragraph .. joint .. (joint == ". " and capital(next_one) or next_one)
    end
    paragraph = paragraph .. ".\n\n"
    parts[#parts + 1] = paragraph
    size = size + #paragraph
  end
  return table.concat(parts)
end

local function utf8_of(code)
  if code < 128 then return string.char(code) end
  return string.char(192 + math.floor(code / 64), 128 + code % 64)
end

--- The letters that byte-level BPE writes bytes as: printable ones as themselves, the others from U+0100 on.
local function byte_letters()
  local letters, others = {}, 0
  for byte = 0, 255 do
    local printable = (byte >= 33 and byte <= 126) or (byte >= 161 and byte <= 172) or byte >= 174
    letters[byte] = utf8_of(printable and byte or 256 + others)
    if not printable then others = others + 1 end
  end
  return letters
end

--- Words as the pre-tokenizer cuts them (a space belongs to the word after it), with their counts.
local function counted_words(text, letters)
  local words, by_text = {}, {}
  for piece in text:gmatch(" ?%a+") do
    local known = by_text[piece]
    if not known then
      known = { count = 0, symbols = {} }
      for i = 1, #piece do known.symbols[i] = letters[piece:byte(i)] end
      by_text[piece], words[#words + 1] = known, known
    end
    known.count = known.count + 1
  end
  return words
end

--- The most frequent pair of neighbours; equals by name, so that the result does not depend on a table's order.
local function best_pair(words)
  local counts = {}
  for _, word in ipairs(words) do
    for i = 1, #word.symbols - 1 do
      local pair = word.symbols[i] .. " " .. word.symbols[i + 1]
      counts[pair] = (counts[pair] or 0) + word.count
    end
  end
  local best
  for pair, count in pairs(counts) do
    if not best or count > counts[best] or count == counts[best] and pair < best then best = pair end
  end
  return best
end

local function merge(words, left, right)
  for _, word in ipairs(words) do
    local merged, i = {}, 1
    while i <= #word.symbols do
      if word.symbols[i] == left and word.symbols[i + 1] == right then
        merged[#merged + 1], i = left .. right, i + 2
      else
        merged[#merged + 1], i = word.symbols[i], i + 1
      end
    end
    word.symbols = merged
  end
end

--- tokenizer.json of byte-level BPE, trained on a text.
-- @tparam string text
-- @tparam number merges at most
function M.tokenizer(text, merges)
  local letters = byte_letters()
  local words, vocab, size, list = counted_words(text, letters), {}, 0, {}
  for byte = 0, 255 do vocab[letters[byte]], size = size, size + 1 end
  for _ = 1, merges do
    local pair = best_pair(words)
    if not pair then break end
    local left, right = pair:match("^(%S+) (%S+)$")
    merge(words, left, right)
    list[#list + 1] = { left, right }
    if not vocab[left .. right] then vocab[left .. right], size = size, size + 1 end
  end
  local byte_level = { type = "ByteLevel", add_prefix_space = false, trim_offsets = true, use_regex = true }
  return native.records.to_json { version = "1.0", pre_tokenizer = byte_level, post_processor = byte_level, decoder = byte_level,
    added_tokens = { { id = size, content = "<|endoftext|>", single_word = false, lstrip = false, rstrip = false, normalized = true,
      special = true } },
    model = { type = "BPE", fuse_unk = false, byte_fallback = false, ignore_merges = false, vocab = vocab, merges = list } }
end

--- A folder with sample_data.txt, and a tokenizer.json beside it; made where they are missing.
-- @tparam string folder
-- @tparam[opt] boolean only_name where they would be, and make nothing
-- @treturn string folder of the text
-- @treturn string path of the tokenizer
function M.write(folder, only_name)
  local data, tokenizer = folder .. "/data", folder .. "/tokenizer.json"
  if only_name then return data, tokenizer end
  local text
  if not native.launch.exists(data .. "/sample_data.txt") then
    text = M.text(M.text_bytes)
    native.files.write(data .. "/sample_data.txt", text)
  end
  if not native.launch.exists(tokenizer) then
    -- Words are few: a part of the text has them all.
    native.files.write(tokenizer, M.tokenizer((text or M.text(2 ^ 16)):sub(1, 2 ^ 16), M.merges))
  end
  return data, tokenizer
end

return M
