--- A model as a folder: config.json and safetensors, as transformers saves and opens them.
-- Inputs: a folder to write to (results/tiny-llama when none is given). Outputs: that folder.
-- Run: moonshard run examples/06_model_folder.lua [FOLDER]
local ms = require "moonshard"

local folder = arg[1] or "results/tiny-llama"

-- A few steps, so that the weights are not the seed's any more.
local model = ms.model("llama3.2-tiny", { task = "lm", device = "cpu", vocab_size = 256 })
local trainer = ms.trainer {
  model = model,
  clip = ms.clip("flash_bookkeeping", { noise_multiplier = 0.5 }),
  optimizer = ms.optim.adamw { lr = 1e-3 },
  data = ms.data.synthetic { batch_size = 4, seq_length = 32 },
}
for _ = 1, 3 do print(("step: loss %.4f"):format(trainer:step().loss)) end

model:save(folder)
print("saved to " .. folder .. ": config.json and model.safetensors")

-- Files are tensors by name; nothing is read before it is asked for.
local weights = ms.weights.open(folder)
print(weights)
for i, name in ipairs(weights:names()) do
  if i > 4 then break end
  local tensor = weights:tensor(name)
  print(("  %-45s %s [%s] norm %.4f"):format(name, tensor.dtype, table.concat(tensor.shape, "x"), tensor:norm():item()))
end
weights:close()

-- The folder's name is a model's name. The same weights give the same losses.
local again = ms.model(folder, { device = "cpu" })
print(again)
local batch = ms.data.synthetic({ model = again, batch_size = 2, seq_length = 16 }):next()
local difference = (model:losses(batch) - again:losses(batch)):abs():max():item()
print(("largest difference of the losses: %g"):format(difference))
assert(difference == 0)

-- A classifier from the same folder: the body is loaded, the new head starts at random, the body is frozen.
local classifier = ms.model(folder, { task = "classify", num_labels = 3, device = "cpu" })
classifier:freeze "model.*"
print(("classifier: %d parameters, trained: %s"):format(classifier.num_parameters, table.concat(classifier.trainable, ", ")))
local report = ms.trainer({
  model = classifier, clip = ms.clip "auto", data = ms.data.synthetic { batch_size = 4, seq_length = 32 },
}):step()
print(("a private step on the head: loss %.4f, norms %.2f to %.2f"):format(
  report.loss, math.min(unpack(report.norms)), math.max(unpack(report.norms))))
