--- A small Llama learns to tell praise from blame, privately, from a file of labelled texts: end to end, with its epsilon.
-- Question: what does a budget of epsilon = 8 leave of the accuracy?
-- Inputs: reviews from a seeded generator (examples/corpus/reviews.lua). Outputs: accuracy on reviews that were held back.
-- Run: moonshard run examples/10_private_finetuning.lua
local ms = require "moonshard"
local here = debug.getinfo(1, "S").source:match("^@(.*)10_private_finetuning%.lua$")
local reviews = dofile(here .. "corpus/reviews.lua")

local name = os.tmpname()
local file, tokenizer = name .. ".jsonl", name .. "_tokenizer.json"
reviews.write(file, 2000, 1)
reviews.write_tokenizer(tokenizer)

local function part(which, model)
  return ms.data.classification { file = file, tokenizer = tokenizer, max_length = 32, part = which, test_share = 0.25, model = model }
end

local function learn(engine, privacy)
  local vocab_size = ms.tokenizer(tokenizer):vocab_size()
  local model = ms.model("llama3-tiny", { task = "classify", num_labels = 2, vocab_size = vocab_size, hidden_dim = 64,
    intermediate_dim = 128, device = "cpu" })
  local train, test = part("train", model), part("test", model)
  local trainer = ms.trainer {
    model = model,
    clip = ms.clip(engine, { max_grad_norm = 1 }),
    optimizer = ms.optim.adam { lr = 2e-3 },
    data = ms.data.loader { dataset = train, sampler = "poisson", batch_size = 64, expected_batch_size = 128 },
    privacy = privacy,
  }
  -- The held-out reviews are made up: evaluating on them costs nobody's privacy.
  local fit = trainer:fit { epochs = 3, evaluate = test, evaluate_options = { public = true }, log = false, progress = false }
  local spent, found = trainer:privacy(), fit.last
  print(("%-12s %d steps of %d reviews, accuracy on %d others %.1f %% (%.1f to %.1f), %s"):format(
    engine == "none" and "not private:" or "private:", fit.steps, train:size(), test:size(), 100 * found.accuracy,
    100 * found.intervals.accuracy.low, 100 * found.intervals.accuracy.high,
    spent.epsilon and ("epsilon = %.2f at delta = %g, noise %.2f"):format(spent.epsilon, spent.delta, trainer.noise_multiplier)
      or "no epsilon"))
end

learn("auto", { target_epsilon = 8, delta = 1e-5, epochs = 3 })
learn("none", nil)
for _, path in ipairs { name, file, tokenizer } do os.remove(path) end
