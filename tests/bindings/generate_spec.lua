--- Model:generate and Trainer:generate from Lua: prompts as text and ids, stop tokens, streaming, errors, ranks, the verb.
local ms = require "moonshard"
local generate = require "moonshard.generate"
local support = require "tests.support.support"

local function writer(options)
  options = options or {}
  options.task, options.device, options.vocab_size = "lm", "cpu", options.vocab_size or 256
  return ms.model(options.name or "llama3-tiny", (function() options.name = nil return options end)())
end

describe("Model:generate", function()
  local model = writer()

  it("takes a text, ids, or a list of either", function()
    local options = { max_new_tokens = 6, temperature = 0, tokenizer = "bytes", stop = false }
    local function with(prompt)
      options.prompt = prompt
      return model:generate(options)
    end
    local text = with "to be"
    assert.are.equal(6, #text.ids[1])
    assert.are.equal(text.text, ms.tokenizer("bytes"):decode(text.ids[1]))
    assert.are.same({ "length" }, text.ended)
    assert.are.same({ 5, 6 }, { text.prompt_tokens, text.new_tokens })
    local ids = with { ("to be"):byte(1, -1) }
    assert.are.same(text.ids, ids.ids)
    local both = with { "to be", { ("or not"):byte(1, -1) }, "t" }
    assert.are.equal(3, #both.texts)
    assert.are.same(text.ids[1], both.ids[1])
    assert.is_nil(both.text)
    assert.matches("%(18 tokens behind 3 prompts, 0 ended by a stop token", tostring(both))
  end)

  it("gives ids alone where there is no tokenizer", function()
    local made = model:generate { prompt = { 1, 2 }, max_new_tokens = 3 }
    assert.is_nil(made.texts)
    assert.are.equal(3, #made.ids[1])
    assert.matches("^%d+ %d+ %d+\n", tostring(made))
  end)

  it("draws by the seed, for each prompt by itself", function()
    local function drawn(options)
      options.prompt, options.max_new_tokens = options.prompt or { { 1 }, { 1 }, { 2, 3 } }, 8
      return model:generate(options).ids
    end
    local first = drawn { seed = 5 }
    assert.are.same(first, drawn { seed = 5, batch_size = 1 })
    assert.are_not.same(first, drawn { seed = 6 })
    assert.are_not.same(first[1], first[2])
    assert.are.same(first[1], drawn({ seed = 5, prompt = { 1 } })[1])
    assert.are.same(drawn { temperature = 0 }, drawn { temperature = 0, seed = 9 })
    assert.are.same(drawn { temperature = 0 }, drawn { top_k = 1 })
  end)

  it("ends at stop tokens, by id or text", function()
    local whole = model:generate({ prompt = { 7 }, max_new_tokens = 12, seed = 1 }).ids[1]
    local at
    for i, id in ipairs(whole) do at = at or (id == whole[6] and i) end
    local stopped = model:generate { prompt = { 7 }, max_new_tokens = 12, seed = 1, stop = whole[6] }
    assert.are.equal(at - 1, #stopped.ids[1])
    assert.are.same({ "stop" }, stopped.ended)
    local named = model:generate { prompt = { 7 }, max_new_tokens = 12, seed = 1, tokenizer = "bytes", stop = { string.char(whole[6]) } }
    assert.are.same(stopped.ids, named.ids)
  end)

  it("tells of each token as it comes, in whole characters", function()
    local told, text = {}, {}
    local made = model:generate { prompt = "abc", tokenizer = "bytes", stop = false, max_new_tokens = 20,
      on_token = function(prompt, id, piece)
        assert.are.equal(1, prompt)
        told[#told + 1], text[#text + 1] = id, piece
      end }
    assert.are.same(made.ids[1], told)
    local joined = table.concat(text)
    assert.are.equal(made.text:sub(1, #joined), joined)
    assert.is_true(#made.text - #joined <= 3)
    assert.are.same({ 0, 1, 2, 0, 3, 0, 0 }, { generate.begun_bytes "a", generate.begun_bytes "a\195", generate.begun_bytes "\226\130",
      generate.begun_bytes "\226\130\172", generate.begun_bytes "\240\159\152", generate.begun_bytes "\240\159\152\128",
      generate.begun_bytes "" })
    local message = support.message_of(model.generate, model, { prompt = { 1 }, on_token = function() error("enough", 0) end })
    assert.matches("on_token: enough", message)
  end)

  it("says what is wrong", function()
    local function wrong(options, words) assert.matches(words, support.message_of(model.generate, model, options), 1, true) end
    wrong({}, "option 'prompt': expected a text, a list of ids, or a list of either, got nothing")
    wrong({ prompt = {} }, "got an empty table")
    wrong({ prompt = "text" }, "option 'tokenizer': expected one beside prompts of text, got none")
    wrong({ prompt = "", tokenizer = "bytes" }, "expected a text of at least one token, got ''")
    wrong({ prompt = { { 1 }, {} } }, "prompt 2: expected at least one token, got none")
    wrong({ prompt = { 1, 999 } }, "expected ids from 0 to 255, got 999")
    wrong({ prompt = { 1, 2.5 } }, "token 2: expected a whole number, got 2.5")
    wrong({ prompt = { 1 }, temperature = -1 }, "'temperature': expected")
    wrong({ prompt = { 1 }, temperature = 1e-9 }, "expected 0 (the most probable token) or at least 0.0001")
    wrong({ prompt = { 1 }, top_p = 0 }, "'top_p': expected above 0 and up to 1, got 0")
    wrong({ prompt = { 1 }, top_p = 1.5 }, "'top_p': expected")
    wrong({ prompt = { 1 }, max_new_tokens = 0 }, "'max_new_tokens': expected")
    wrong({ prompt = { 1 }, max_new_token = 3 }, "unknown option 'max_new_token'; did you mean 'max_new_tokens'?")
    wrong({ prompt = { 1 }, stop = "ab", tokenizer = "bytes" }, "texts of one token each, got 'ab' of 2 tokens")
    wrong({ prompt = { 1 }, stop = "a" }, "option 'stop': expected a tokenizer beside the text 'a', got none")
    wrong({ prompt = { { 1 }, { 2 } }, stream = true, tokenizer = "bytes" }, "option 'stream': expected one prompt")
    local images = ms.model("dit-tiny", { device = "cpu" })
    assert.matches("expected a model of text with task lm, got 'dit-tiny' with task denoise",
      support.message_of(images.generate, images, { prompt = { 1 } }), 1, true)
  end)

  it("streams at the prompt of a session, once", function()
    local out = {}
    local function keep(text) out[#out + 1] = text end
    local session = require("moonshard.repl").new { out = keep, err = keep }
    session.env.model = model
    session:run [[made = model:generate { prompt = "abc", tokenizer = "bytes", stop = false, max_new_tokens = 30, temperature = 0 }]]
    session:run "made"
    local text = table.concat(out)
    local made = session.env.made
    assert.is_true(made.streamed)
    local at = text:find(made.text:sub(1, 20), 1, true)
    assert.is_truthy(at, text)
    assert.is_nil(text:find(made.text:sub(1, 20), at + 1, true))
    assert.is_true(#out > 10)
    assert.matches("%(30 tokens behind 1 prompt", text)
  end)
end)

describe("a model folder", function()
  local folder
  setup(function()
    folder = support.temporary_folder()
    local tokenizer = support.root() .. "/tests/data/tokenizers/llama3.json"
    writer({ vocab_size = ms.tokenizer(tokenizer):vocab_size() }):save(folder .. "/model")
    support.write(folder .. "/model/tokenizer.json", support.read(tokenizer))
  end)
  teardown(function() support.remove(folder) end)

  it("brings its tokenizer and its stop tokens", function()
    local model = ms.model(folder .. "/model", { device = "cpu" })
    local made = model:generate { prompt = "to be", max_new_tokens = 8 }
    assert.are.equal(made.text, ms.tokenizer(folder .. "/model"):decode(made.ids[1], { skip_special = true }))
    local id = model:generate({ prompt = "to be", max_new_tokens = 8, stop = false }).ids[1][3]
    support.write(folder .. "/model/generation_config.json", ('{"eos_token_id": [%d, 1]}'):format(id))
    local stopped = model:generate { prompt = "to be", max_new_tokens = 8 }
    os.remove(folder .. "/model/generation_config.json")
    assert.are.same({ "stop" }, stopped.ended)
    assert.is_true(#stopped.ids[1] <= 2)
  end)

  it("is continued by the verb", function()
    local words = ("generate --model %s/model --prompt 'to be' --max-new-tokens 5 --greedy --device cpu"):format(folder)
    local json = support.run_program(words .. " --json")
    assert.are.equal(0, json.code, json.err)
    local rows = support.parse_json(json.out)
    assert.are.equal("to be", rows[1].prompt)
    assert.are.equal(5, #rows[1].ids)
    assert.are.equal("length", rows[1].ended)
    local plain = support.run_program(words)
    assert.are.equal(rows[1].text .. "\n", plain.out)
    assert.matches("5 tokens, .* tokens/s", plain.err)
    local wrong = support.run_program("generate --model llama3-tiny --prompt x")
    assert.are.equal(2, wrong.code)
    assert.matches("expected a folder with config.json, got 'llama3-tiny'", wrong.err, 1, true)
    assert.are.equal(2, support.run_program(("generate --model %s/model"):format(folder)).code)
  end)
end)
