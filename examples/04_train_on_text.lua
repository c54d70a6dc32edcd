--- A small language model learns bytes of text, with clipping and noise, by the engine that chooses for itself.
-- Question: how much of what training learns is left when it is private?
-- Inputs: this project's README and this script. Outputs: bits per byte on text that was held back.
-- Every batch is drawn anew, but a README is no data set of many people: no epsilon is claimed.
-- Run: moonshard run examples/04_train_on_text.lua
local ms = require "moonshard"

local here = debug.getinfo(1, "S").source:match("^@(.*)$")
local root = here:match("^(.*)examples/[^/]*$") or "../"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end
local text = read(root .. "README.md") .. read(here)

-- The last tenth is held back. A window is `length` bytes; the label of a byte is the one that follows.
local length, split = 32, math.floor(#text * 0.9)
local function batch_of(starts)
  local ids, labels = {}, {}
  for i, start in ipairs(starts) do
    ids[i] = { text:byte(start, start + length - 1) }
    labels[i] = { text:byte(start + 1, start + length) }
  end
  return { input_ids = ms.tensor(ids, { dtype = "int64" }), labels = ms.tensor(labels, { dtype = "int64" }) }
end

local function random_batch(size)
  local starts = {}
  for i = 1, size do starts[i] = math.random(1, split - length - 1) end
  return batch_of(starts)
end

local held_back = {}
for start = split, #text - length - 1, length do held_back[#held_back + 1] = start end
local test_batch = batch_of(held_back)
local function bits_per_byte(model)
  return ms.scope(function() return model:losses(test_batch):mean():item() / math.log(2) end)
end

local steps = 40
local function learn(title, engine, noise)
  math.randomseed(1)
  local model = ms.model("llama3.2-tiny", { task = "lm", vocab_size = 256, hidden_dim = 64, intermediate_dim = 128, device = "cpu" })
  local trainer = ms.trainer {
    model = model,
    clip = ms.clip(engine, { max_grad_norm = 1, noise_multiplier = noise }),
    optimizer = ms.optim.adam { lr = 5e-3 },
  }
  print(("%s: %d parameters, engine %s"):format(title, model.num_parameters, trainer.engine))
  print(("  step   0: held back %.2f bits per byte"):format(bits_per_byte(model)))
  for step = 1, steps do
    local report = ms.scope(function() return trainer:step(random_batch(32)) end)
    if step % 10 == 0 then
      print(("  step %3d: held back %.2f bits per byte, loss %.3f, %3.0f %% clipped"):format(
        step, bits_per_byte(model), report.loss, 100 * report.clip_fraction))
    end
  end
  return bits_per_byte(model)
end

local plain = learn("without privacy", "none", 0)
local private = learn("private", "auto", 0.5)
print(("after %d steps: %.2f bits per byte without privacy, %.2f with it, 8 for a guess"):format(steps, plain, private))
