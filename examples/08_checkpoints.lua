--- Training that is interrupted and goes on exactly, also with its parameters spread otherwise.
-- Inputs: a folder to write to (results/checkpoints when none is given). Outputs: checkpoints in that folder.
-- Run: moonshard run examples/08_checkpoints.lua [FOLDER], or moonshard run --nproc 2 examples/08_checkpoints.lua
local ms = require "moonshard"

local folder = arg[1] or "results/checkpoints"
local is_first = ms.dist.rank() == 0
local function say(...) if is_first then print(string.format(...)) end end

--- Everything that a run is made of; what is not in here is in the checkpoint.
local function new_trainer(parallel)
  local model = ms.model("llama3.2-tiny", { task = "lm", device = "cpu", vocab_size = 256, dtype = "float64", seed = 5 })
  return ms.trainer {
    model = model,
    clip = ms.clip("auto", { clipping = "adaptive", noise_multiplier = 0.5, quantile_noise = 1 }),
    optimizer = ms.optim.adamw { lr = 1e-3 },
    data = ms.data.synthetic { batch_size = 4, seq_length = 16 },
    parallel = parallel,
    privacy = { secure = false }, -- noise from the seed, so that the runs can be compared: not private
  }
end

local function train(trainer, steps)
  local report
  for _ = 1, steps do report = trainer:step() end
  say("  step %d: loss %.12f, bound %.6f, %d private steps", report.step, report.loss, report.clip_bound, report.privacy_steps)
  return report
end

say("uninterrupted, parameters in parts:")
local trainer = new_trainer(ms.fsdp { sharding = "zero3" })
train(trainer, 3)
local path = trainer:save(folder)
say("  saved %s", path)
local want = train(trainer, 3)
trainer:close()

say("from the checkpoint, the same:")
trainer = new_trainer(ms.fsdp { sharding = "zero3" })
assert(trainer:resume(path) == 3)
local got = train(trainer, 3)
assert(got.loss == want.loss and got.clip_bound == want.clip_bound and got.privacy_steps == 6)
trainer:close()

say("from the checkpoint, every rank with a whole copy:")
trainer = new_trainer(ms.ddp {})
assert(trainer:resume(path) == 3)
got = train(trainer, 3)
assert(math.abs(got.loss - want.loss) < 1e-9)

-- What does not fit is refused before anything changes.
local other = ms.trainer {
  model = ms.model("llama3.2-tiny", { task = "lm", device = "cpu", vocab_size = 300, dtype = "float64", seed = 5 }),
  parallel = ms.ddp {},
}
local good, message = pcall(other.resume, other, path)
say("another model: %s", tostring(message):gsub("^.-checkpoint ", "checkpoint "))
assert(not good)
