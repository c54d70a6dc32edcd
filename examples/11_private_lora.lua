--- A small Llama that has read public text learns to tell praise from blame, privately, by adapters of low rank alone.
-- Question: what does LoRA cost and leave, beside training all weights?
-- Inputs: reviews from a seeded generator (examples/corpus/reviews.lua); their texts alone stand for public text. Outputs: accuracy
-- on reviews that were held back, and an adapter that PEFT opens.
-- Run: moonshard run examples/11_private_lora.lua
local ms = require "moonshard"
local here = debug.getinfo(1, "S").source:match("^@(.*)11_private_lora%.lua$")
local reviews = dofile(here .. "corpus/reviews.lua")

local name = os.tmpname()
local file, tokenizer, base, adapter = name .. ".jsonl", name .. "_tokenizer.json", name .. "_base", name .. "_adapter"
reviews.write(file, 2000, 1)
reviews.write_tokenizer(tokenizer)

-- The base model: next words of public text, not private.
local function pretrain()
  local model = ms.model("llama3-tiny", { task = "lm", vocab_size = ms.tokenizer(tokenizer):vocab_size(), hidden_dim = 64,
    intermediate_dim = 128, device = "cpu", seed = 1 })
  os.execute(("mkdir -p %s_text"):format(name))
  local public = name .. "_public.jsonl"
  reviews.write(public, 1000, 2)
  local text = assert(io.open(name .. "_text/public.txt", "w"))
  for line in io.lines(public) do text:write(line:match '"text": *"(.-)"', "\n") end
  text:close()
  os.remove(public)
  local dataset = ms.data.text { folder = name .. "_text", tokenizer = tokenizer, max_length = 32, model = model, cache = "none",
    end_of_text = "Ċ" }  -- the line break, as byte-level vocabularies write it
  local trainer = ms.trainer { model = model, clip = ms.clip("none"), optimizer = ms.optim.adam { lr = 3e-3 },
    data = ms.data.loader { dataset = dataset, batch_size = 32 } }
  local loss
  for _ = 1, 60 do loss = trainer:step().loss end
  print(("base model: loss %.2f after %d steps on public text"):format(loss, trainer.steps))
  trainer:close()
  model:save(base)
end

local function learn(what, options)
  options.task, options.num_labels, options.device, options.seed = "classify", 2, "cpu", 3
  local model = ms.model(base, options)
  local function part(which)
    return ms.data.classification { file = file, tokenizer = tokenizer, max_length = 32, part = which, test_share = 0.25, model = model }
  end
  local trainer = ms.trainer {
    model = model,
    clip = ms.clip("auto", { max_grad_norm = 1 }),
    optimizer = ms.optim.adam { lr = options.lora and 2e-2 or 5e-3 },
    data = ms.data.loader { dataset = part "train", sampler = "poisson", batch_size = 64, expected_batch_size = 128 },
    privacy = { target_epsilon = 8, delta = 1e-5, epochs = 6 },
  }
  -- The held-out reviews are made up: evaluating on them costs nobody's privacy.
  local fit = trainer:fit { epochs = 6, evaluate = part "test", evaluate_options = { public = true }, log = false, progress = false }
  local trained = 0
  for _, parameter in ipairs(model.trainable) do trained = trained + model:parameter(parameter).numel end
  print(("%-12s %6d of %d parameters trained, accuracy %.1f %% (%.1f to %.1f), epsilon = %.2f"):format(what, trained, model.num_parameters,
    100 * fit.last.accuracy, 100 * fit.last.intervals.accuracy.low, 100 * fit.last.intervals.accuracy.high, trainer:privacy().epsilon))
  trainer:close()
  return model
end

pretrain()
learn("all weights:", {})
local adapted = learn("LoRA:", { lora = { rank = 8 } })
adapted:save_adapter(adapter)
local names = ms.weights.open(adapter .. "/adapter_model.safetensors"):names()
print(("the adapter alone, as PEFT keeps it: %d tensors, %s …"):format(#names, names[1]))
for _, path in ipairs { name, file, tokenizer, base, adapter, name .. "_text" } do os.execute(("rm -rf %s"):format(path)) end
