--- A trainer put together by hand, as one does at the prompt.
-- Run: moonshard run examples/02_piece_by_piece.lua
local ms = require "moonshard"

local model = ms.model("llama3-tiny", { task = "lm" })
print(model)

local trainer = ms.trainer {
  model = model,
  clip = ms.clip("materialize", { max_grad_norm = 1, noise_multiplier = 0.5 }),
  optimizer = ms.optim.adamw { lr = 1e-3 },
  data = ms.data.synthetic { batch_size = 4, seq_length = 32 },
}
local report = trainer:step()
print(("step %d: loss %.4f, %d of %d samples clipped"):format(
  report.step, report.loss, report.clip_fraction * report.batch_size, report.batch_size))
print(ms.profile(trainer, { iters = 5 }))
