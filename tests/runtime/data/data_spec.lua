--- ms.tokenizer, ms.data.text and ms.data.classification from Lua.
local support = require "tests.support.support"
local ms = require "moonshard"
local tokenizers = support.root() .. "/tests/data/tokenizers/"

local write = support.write

local function fails(pattern, call, ...)
  local ok, message = pcall(call, ...)
  assert.is_false(ok)
  assert.is_truthy(message:find(pattern, 1, true), message)
end

describe("ms.tokenizer", function()
  it("is the tokenizer of bytes by that name", function()
    local bytes = ms.tokenizer "bytes"
    assert.are.same({ 104, 105, 0, 255 }, bytes:encode "hi\0\255")
    assert.are.equal("hi\0\255", bytes:decode { 104, 105, 0, 255 })
    assert.are.equal(256, bytes:vocab_size())
    assert.are.equal("Tokenizer bytes (256 ids)", tostring(bytes))
    assert.are.same({}, bytes:encode "")
    assert.are.equal("", bytes:decode {})
  end)

  it("reads a tokenizer.json", function()
    local llama = ms.tokenizer(tokenizers .. "llama3.json")
    local begin = llama:id "<|begin_of_text|>"
    local ids = llama:encode "it's<|eot_id|>"
    assert.are.equal(begin, ids[1])
    assert.are.equal(llama:id "<|eot_id|>", ids[#ids])
    assert.are.equal("it's", llama:decode(ids, { skip_special = true }))
    assert.are.equal("<|begin_of_text|>it's<|eot_id|>", llama:decode(ids))
    assert.are.equal(#ids - 1, #llama:encode("it's<|eot_id|>", { special_tokens = false }))
    assert.is_nil(llama:id "<|no_such|>")
  end)

  it("says what is wrong", function()
    local bytes = ms.tokenizer "bytes"
    fails("'/no/such'", ms.tokenizer, "/no/such")
    fails("expected ids from 0 to 255, got 256", bytes.decode, bytes, { 256 })
    fails("a list of ids", bytes.decode, bytes, 5)
    fails("unknown option", bytes.encode, bytes, "x", { no_such = true })
    fails("encode, decode, id, end_of_text, vocab_size", function() return bytes.length end)
    fails("UTF-8", function() return ms.tokenizer(tokenizers .. "gpt2.json"):encode "\255" end)
  end)
end)

describe("ms.data", function()
  local folder
  before_each(function() folder = support.temporary_folder() end)
  after_each(function() support.remove(folder) end)

  it("reads a folder of text", function()
    write(folder .. "/a.txt", "hello")
    write(folder .. "/b.jsonl", '{"text": "world"}\n')
    local data = ms.data.text { folder = folder, max_length = 3 }
    assert.are.equal(3, data:size())
    local batch = data:batch { 2, 1 }
    assert.are.same({ { 108, 111, 0 }, { 104, 101, 108 } }, batch.input_ids:tolist())
    assert.are.same({ { 111, 0, -100 }, { 101, 108, -100 } }, batch.labels:tolist())
    local facts = data:facts()
    assert.are.equal(2, facts.documents)
    assert.are.equal(2, facts.tokens_dropped)
    assert.is_false(facts.cache.used)
    assert.is_true(ms.data.text({ folder = folder, max_length = 4 }):facts().cache.used)
    assert.are.equal("Dataset of 3 examples", tostring(data))
    assert.are.same({ 0, 3 }, data:batch({}).input_ids.shape)
  end)

  it("trains a language model on it", function()
    write(folder .. "/a.txt", ("some text to learn from. "):rep(20))
    local model = ms.model("llama3-tiny", { task = "lm", device = "cpu" })
    local data = ms.data.text { folder = folder, max_length = 16, model = model }
    local trainer = ms.trainer { model = model, clip = ms.clip("ghost", { max_grad_norm = 1, noise_multiplier = 1 }) }
    assert.is_true(trainer:step(data:batch { 1, 2, 3 }).loss > 0)
  end)

  it("reads labelled texts", function()
    local file = folder .. "/a.jsonl"
    write(file, '{"text": "ab", "label": "yes"}\n{"text": "c", "label": "no"}\n')
    local data = ms.data.classification { file = file, max_length = 2 }
    assert.are.same({ "no", "yes" }, data:facts().labels)
    assert.are.same({ 1, 0 }, data:batch({ 1, 2 }).labels:tolist())
    data = ms.data.classification { file = file, max_length = 2, labels = { "yes", "no" } }
    assert.are.same({ 0, 1 }, data:batch({ 1, 2 }).labels:tolist())
    fails("num_labels = 1 of the model", ms.data.classification,
      { file = file, max_length = 2, model = ms.model("llama3-tiny", { task = "classify", num_labels = 1, device = "cpu" }) })
    fails("a list of texts", ms.data.classification, { file = file, max_length = 2, labels = { 1 } })
  end)

  it("says what is wrong", function()
    write(folder .. "/a.txt", "x\255")
    fails("expected option 'folder'", ms.data.text, { max_length = 4 })
    fails("expected option 'max_length'", ms.data.text, { folder = folder })
    fails("a.txt:1: expected text in UTF-8, got byte 0xff at byte 1", ms.data.text, { folder = folder, max_length = 2 })
    fails("option 'packing'", ms.data.text, { folder = folder, max_length = 2, packing = "loose" })
    fails("option 'model'", ms.data.text, { folder = folder, max_length = 2, model = 5 })
    fails("a .jsonl file", ms.data.classification, { file = folder .. "/a.txt", max_length = 2 })
    local data = ms.data.text { folder = folder, max_length = 2, invalid_utf8 = "replace" }
    assert.are.equal(1, data:facts().repairs.replaced_characters)
    fails("expected examples from 1 to 2, got 3", data.batch, data, { 3 })
    fails("a list of numbers", data.batch, data, 1)
    fails("size, facts, batch", function() return data.length end)
  end)
end)

describe("private data", function()
  local folder
  before_each(function() folder = support.temporary_folder() end)
  after_each(function() support.remove(folder) end)

  -- Whatever the umask is: tokens are a copy of the texts, a checkpoint has weights and what noise comes from, a log may quote data.
  it("is readable by its owner alone in caches, checkpoints and logs", function()
    os.execute(("mkdir -m 755 %s/texts"):format(folder))
    write(folder .. "/texts/one.txt", ("All happy families are alike. "):rep(100))
    write(folder .. "/train.lua", [[
      local ms = require "moonshard"
      local model = ms.model("llama3-tiny", { task = "lm" })
      local text = ms.data.text { folder = "texts", max_length = 16, model = model }
      local trainer = ms.trainer { model = model, clip = ms.clip("flash"), data = ms.data.loader { dataset = text, batch_size = 2 } }
      trainer:step()
      trainer:save "new/checkpoints"
      ms.sweep { name = "logs", model = "linear-tiny", iters = 1, warmup = 0, grid = { mode = { "none" } } }:run()
    ]])
    local done = support.run(("umask 000; %s run train.lua"):format(support.shell_quoted(support.program())), { folder = folder })
    assert.are.equal(0, done.code, done.err)
    local open = support.run(table.concat({
      "find texts/.moonshard -name '*.tokens' -perm /077", "find texts/.moonshard new -type d -perm /077",
      "find new -perm /077", "find results -name 'log*' -perm /077",
      "ls texts/.moonshard/*.tokens new/checkpoints/latest results/*/points/*/log* | wc -l" }, "\n"), { folder = folder })
    local readable, files = open.out:match "^(.-)(%d+)\n$"
    assert.are.equal("", readable)
    assert.are.equal("3", files)
  end)
end)
