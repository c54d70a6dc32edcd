--- moonshard generate: text from a model folder, at the command line.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local usage = require "moonshard.usage"

local passed_on = { "max_new_tokens", "temperature", "top_p", "top_k", "seed", "batch_size", "tokenizer", "stop" }

local function is_folder(path)
  local file = io.open(path .. "/config.json", "rb")
  if file then file:close() end
  return file ~= nil
end

local function prompts_of(given)
  local prompts = given.prompt or {}
  if #prompts == 0 then usage.fail("generate: expected --prompt TEXT, got none; moonshard generate --help") end
  return prompts
end

local function generate(given)
  if not given.model then usage.fail("generate: expected --model DIR, got none; moonshard generate --help") end
  if not is_folder(given.model) and not given.random_weights then
    usage.fail("generate: expected a folder with config.json, got '%s'; a preset with random weights needs --random-weights", given.model)
  end
  local prompts = prompts_of(given)
  local ms = package.loaded["moonshard"]
  local model = usage.attempt("ms%.model:", "generate:", ms.model, given.model,
    { task = "lm", device = given.device, dtype = given.dtype, adapter = given.adapter })
  local options = { prompt = #prompts == 1 and prompts[1] or prompts, stream = #prompts == 1 and not given.json or nil }
  for _, name in ipairs(passed_on) do options[name] = given[name] end
  if given.greedy then options.temperature = 0 end
  local made = usage.attempt("generate:", "generate:", model.generate, model, options)
  if given.json then
    io.write(native.records.to_json(lists.map(prompts, function(prompt, i)
      return { prompt = prompt, text = made.texts[i], ids = made.ids[i], ended = made.ended[i] }
    end)))
  elseif #prompts > 1 then
    for i, text in ipairs(made.texts) do print(("%s%s\n"):format(prompts[i], text)) end
  end
  io.stderr:write(("moonshard: generate: %d tokens, %.3g tokens/s\n"):format(made.new_tokens, made.tokens_per_second))
  return 0
end

return {
  usage = "--model DIR --prompt TEXT [--prompt TEXT …] [--max-new-tokens N] [--temperature T | --greedy] [--top-p P] [--seed N] [--json]",
  about = "Continues each prompt with what the model of a folder puts behind it. The text of a single one appears as it is made.",
  flags = {
    { name = "model", kind = "text", value = "DIR", doc = "a Hugging Face folder: config.json, weights, tokenizer.json" },
    { name = "prompt", kind = "text", repeats = true, raw = true, value = "TEXT", doc = "what to continue; may be given several times" },
    { name = "max_new_tokens", kind = "int", value = "N", doc = "most tokens that are added (128)" },
    { name = "temperature", kind = "number", value = "T", doc = "scores are divided by it before a token is drawn (1); 0 is --greedy" },
    { name = "greedy", kind = "boolean", doc = "always the most probable token" },
    { name = "top_p", kind = "number", value = "P", doc = "draw among the fewest most probable tokens that add up to P (1)" },
    { name = "top_k", kind = "int", value = "K", doc = "draw among the K most probable tokens (0: all)" },
    { name = "seed", kind = "int", doc = "start of the random numbers (0)" },
    { name = "stop", kind = "text", repeats = true, raw = true, value = "TOKEN", doc = "token that ends a text; the folder's own" },
    { name = "tokenizer", kind = "text", value = "PATH", doc = "another tokenizer.json than the folder's, or bytes" },
    { name = "adapter", kind = "text", value = "DIR", doc = "LoRA adapter as PEFT saves it" },
    { name = "device", kind = "text", choices = { "auto", "cpu", "cuda" }, doc = "where it runs (auto)" },
    { name = "dtype", kind = "text", choices = { "float32", "float64", "bfloat16" }, doc = "dtype of the weights (the folder's)" },
    { name = "batch_size", kind = "int", value = "B", doc = "prompts that are continued together (64)" },
    { name = "random_weights", kind = "boolean", doc = "--model may be a preset's name" },
    { name = "json", kind = "boolean", doc = "prompts, texts, ids and reasons as JSON" },
  },
  notes = "docs/generate.md says more; in scripts and at the prompt it is model:generate { … }.",
  run = generate,
}
