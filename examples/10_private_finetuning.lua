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

local function accuracy(model, data)
  local examples = {}
  for i = 1, data:size() do examples[i] = i end
  local batch = data:batch(examples)
  local scores, labels = model:forward(batch):tolist(), batch.labels:tolist()
  local right = 0
  for i, score in ipairs(scores) do
    if (score[2] > score[1]) == (labels[i] == 1) then right = right + 1 end
  end
  return 100 * right / #labels
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
  local epochs = 3
  for _ = 1, math.ceil(epochs * train:size() / 128) do
    ms.scope(function() trainer:step() end)
  end
  local spent = trainer:privacy()
  print(("%-12s %d steps of %d reviews, accuracy on %d others %.1f %%, %s"):format(
    engine == "none" and "not private:" or "private:", math.ceil(epochs * train:size() / 128), train:size(), test:size(),
    ms.scope(function() return accuracy(model, test) end),
    spent.epsilon and ("epsilon = %.2f at delta = %g, noise %.2f"):format(spent.epsilon, spent.delta, trainer.noise_multiplier)
      or "no epsilon"))
end

learn("auto", { target_epsilon = 8, delta = 1e-5, epochs = 3 })
learn("none", nil)
for _, path in ipairs { name, file, tokenizer } do os.remove(path) end
