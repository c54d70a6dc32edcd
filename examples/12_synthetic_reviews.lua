--- A small Llama learns privately to write reviews of either kind; a classifier then learns from what it writes, and from nothing else.
-- Question: how good is a classifier that has never seen a real review?
-- Inputs: reviews from a seeded generator (examples/corpus/reviews.lua); texts of others, without labels, stand for public text.
-- Outputs: accuracy on the held-back reviews of examples/10_private_finetuning.lua, beside that of private training on the real ones.
-- Run: moonshard run examples/12_synthetic_reviews.lua
--
-- Each label has an adapter of its own, trained to epsilon = 8. A review has one label and so is seen by one of the two alone: both
-- together have epsilon = 8. What they write is post-processing: it costs nothing more, however many reviews are written or classifiers
-- trained. That a text is praise or blame is known of the private reviews only; the base model has never seen a label.
local ms = require "moonshard"
local here = debug.getinfo(1, "S").source:match("^@(.*)12_synthetic_reviews%.lua$")
local reviews = dofile(here .. "corpus/reviews.lua")

local name = os.tmpname()
local file, tokenizer, base, synthetic = name .. ".jsonl", name .. "_tokenizer.json", name .. "_base", name .. "_synthetic.jsonl"
local labels = { "blame", "praise" }
reviews.write(file, 2000, 1)
reviews.write_tokenizer(tokenizer)
local words = ms.tokenizer(tokenizer)

--- A small Llama of random weights.
local function small_llama(task, seed)
  return ms.model("llama3-tiny", { task = task, num_labels = task == "classify" and 2 or nil, vocab_size = words:vocab_size(),
    hidden_dim = 64, intermediate_dim = 128, device = "cpu", seed = seed })
end

local function labelled(path, part, test_share)
  return ms.data.classification { file = path, tokenizer = tokenizer, max_length = 32, part = part, test_share = test_share,
    labels = labels }
end

--- A dataset with a sample for each text. A full stop ends it: there the model learns to end.
local function documents(folder, texts, model)
  os.execute("mkdir -p " .. folder)
  local out = assert(io.open(folder .. "/reviews.jsonl", "w"))
  for _, text in ipairs(texts) do out:write(('{"text": "%s."}\n'):format(text)) end
  out:close()
  return ms.data.text { folder = folder, tokenizer = tokenizer, packing = "padded", max_length = 32, model = model, cache = "none",
    end_of_text = "Ċ" }  -- what padding is made of: the line break, as byte-level vocabularies write it
end

--- Texts of a file of reviews by their labels; of the part that example 10 trains on.
local function texts_by_label(path)
  local train = labelled(path, "train", 0.25)
  local by_label = { {}, {} }
  for i = 1, train:size() do
    local batch = train:batch { i }
    local ids, list = batch.input_ids:tolist()[1], by_label[batch.labels:item() + 1]
    for at = #ids, batch.attention_mask:sum():item() + 1, -1 do ids[at] = nil end
    list[#list + 1] = words:decode(ids):gsub("^ ", "")
  end
  return by_label
end

-- 1. How reviews are worded: next words of public text, not private.
local function pretrain()
  local public, texts = name .. "_public.jsonl", {}
  reviews.write(public, 3000, 2)
  for line in io.lines(public) do texts[#texts + 1] = line:match '"text": "(.-)"' end
  os.remove(public)
  local model = small_llama("lm", 1)
  local trainer = ms.trainer { model = model, clip = ms.clip "none", optimizer = ms.optim.adam { lr = 3e-3 },
    data = ms.data.loader { dataset = documents(name .. "_public", texts, model), sampler = "shuffled", batch_size = 64 } }
  local fit = trainer:fit { steps = 150, log = false, progress = false }
  print(("base model: loss %.2f after %d steps on public text"):format(fit.report.loss, fit.steps))
  trainer:close()
  model:save(base)
end

-- 2. What reviews of a label are made of: an adapter, private.
local function learn_to_write(label, texts)
  local model = ms.model(base, { task = "lm", device = "cpu", seed = 3, lora = { rank = 8, targets = { "lm_head" } } })
  local trainer = ms.trainer {
    model = model,
    clip = ms.clip("auto", { max_grad_norm = 1 }),
    optimizer = ms.optim.adam { lr = 5e-3 },
    data = ms.data.loader { dataset = documents(name .. "_" .. label, texts, model), sampler = "poisson", batch_size = 64,
      expected_batch_size = 128 },
    privacy = { target_epsilon = 8, delta = 1e-5, epochs = 3 },
  }
  local fit = trainer:fit { log = false, progress = false }
  print(("writer of %-6s %d steps of %d reviews, epsilon = %.2f at delta = 1e-05, noise %.2f"):format(label .. ":", fit.steps, #texts,
    trainer:privacy().epsilon, trainer.noise_multiplier))
  trainer:close()
  return model
end

-- 3. Reviews that nobody wrote. One that is not ended by a full stop is left out.
local function write_reviews(model, label, count, out)
  local prompts = {}
  for i = 1, count do prompts[i] = "the" end
  local made = model:generate { prompt = prompts, tokenizer = tokenizer, max_new_tokens = 30, stop = ".", batch_size = 250 }
  for i, text in ipairs(made.texts) do
    if made.ended[i] == "stop" and not text:find "[^%a ]" then out:write(('{"text": "the%s", "label": "%s"}\n'):format(text, label)) end
  end
  print(("  \"the%s\" (%.0f tokens/s)"):format(made.texts[1], made.tokens_per_second))
end

-- 4. A classifier as in example 10.
local function classify(what, train, engine, privacy)
  local trainer = ms.trainer {
    model = small_llama("classify", 4),
    clip = ms.clip(engine, { max_grad_norm = 1 }),
    optimizer = ms.optim.adam { lr = 2e-3 },
    data = ms.data.loader { dataset = train, sampler = "poisson", batch_size = 64, expected_batch_size = 128 },
    privacy = privacy,
  }
  -- The held-out reviews are made up: evaluating on them costs nobody's privacy.
  local fit = trainer:fit { epochs = 3, evaluate = labelled(file, "test", 0.25), evaluate_options = { public = true }, log = false,
    progress = false }
  print(("%-36s accuracy on %d others %.1f %% (%.1f to %.1f)"):format(what, fit.last.samples, 100 * fit.last.accuracy,
    100 * fit.last.intervals.accuracy.low, 100 * fit.last.intervals.accuracy.high))
  trainer:close()
end

pretrain()
local by_label = texts_by_label(file)
local out = assert(io.open(synthetic, "w"))
for i, label in ipairs(labels) do write_reviews(learn_to_write(label, by_label[i]), label, 1000, out) end
out:close()
local made, real = labelled(synthetic, "all"), labelled(file, "train", 0.25)
classify(("%d synthetic reviews, epsilon = 8:"):format(made:size()), made, "none")
classify(("%d real reviews, epsilon = 8:"):format(real:size()), real, "auto", { target_epsilon = 8, delta = 1e-5, epochs = 3 })
for _, ending in ipairs { "", ".jsonl", "_tokenizer.json", "_base", "_public", "_blame", "_praise", "_synthetic.jsonl" } do
  os.execute(("rm -rf %s%s"):format(name, ending))
end
