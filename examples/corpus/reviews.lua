--- A small labelled corpus from a seeded generator: short reviews, each with more praise than blame or the other way round.
-- Every word comes in reviews of both labels, so that no single word gives the label away: it takes the balance of all.
-- Use: local reviews = dofile "examples/corpus/reviews.lua"; reviews.write(file, count, seed); reviews.write_tokenizer(file)
local M = {}

local function words(text)
  local list = {}
  for word in text:gmatch("%S+") do list[#list + 1] = word end
  return list
end

local praise = words "lovely bright honest warm clever generous tasty quick charming solid fresh kind"
local blame = words "dull broken rude cold lazy greedy stale slow boring flimsy bitter noisy"
local things = words "film book hotel soup phone waiter song garden city train story chair coffee lesson"
local links = words "and but while although because"

-- Park and Miller's generator: the same corpus wherever it is made.
local function generator(seed)
  local state = seed % 2147483646 + 1
  return function(n)
    state = state * 48271 % 2147483647
    return state % n + 1
  end
end

--- One review of 3 or 5 opinions, most of them of its label (1: praise, 0: blame).
local function review(label, draw)
  local count = draw(2) * 2 + 1
  local of_label = (count - 1) / 2 + draw((count + 1) / 2)
  local opinions = {}
  for i = 1, count do
    local praises = (label == 1) == (i <= of_label)
    local list = praises and praise or blame
    table.insert(opinions, draw(i), ("the %s was %s"):format(things[draw(#things)], list[draw(#list)]))
  end
  local text = opinions[1]
  for i = 2, count do text = text .. " " .. links[draw(#links)] .. " " .. opinions[i] end
  return text
end

--- Writes `count` reviews as lines {"text": …, "label": "praise" | "blame"}.
function M.write(path, count, seed)
  local draw = generator(seed)
  local file = assert(io.open(path, "w"))
  for _ = 1, count do
    local label = draw(2) - 1
    file:write(('{"text": "%s", "label": "%s"}\n'):format(review(label, draw), label == 1 and "praise" or "blame"))
  end
  file:close()
end

--- Writes a tokenizer.json with a token for each byte and for each word above. The words are this file's, not learned from
-- the reviews: a vocabulary learned from private text would leak it.
function M.write_tokenizer(path)
  local function utf8(code)
    return code < 0x80 and string.char(code) or string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64)
  end
  local vocab, count, unseen = {}, 0, 0x100
  local function add(token)
    vocab[count + 1] = ('"%s":%d'):format(token:gsub('[\\"]', "\\%0"), count)
    count = count + 1
  end
  for byte = 0, 255 do -- the byte-level alphabet: printable characters, and those from U+0100 on for the other bytes
    local printable = (byte >= 33 and byte <= 126) or (byte >= 0xA1 and byte <= 0xAC) or byte >= 0xAE
    add(utf8(printable and byte or unseen))
    if not printable then unseen = unseen + 1 end
  end
  for _, list in ipairs { praise, blame, things, links, { "the", "was" } } do
    for _, word in ipairs(list) do add(utf8(0x120) .. word) end -- U+0120 is the blank
  end
  local file = assert(io.open(path, "w"))
  file:write('{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}, "model": {"type": "BPE", "ignore_merges": true, ',
    '"merges": [], "vocab": {', table.concat(vocab, ","), "}}}\n")
  file:close()
end

return M
