-- Private training over several ranks: every rank keeps a part of the parameters, gradients and optimizer state.
--   moonshard run --nproc 2 examples/07_sharded.lua
-- Alone it runs, too: a world of one.
local ms = require "moonshard"
local rank, world = ms.dist.rank(), ms.dist.world()

local function train(parallel)
  local trainer = ms.trainer {
    model = ms.model("llama3-tiny", { task = "lm", device = "cpu", seed = 7 }),
    clip = ms.clip("flash_bookkeeping", { max_grad_norm = 1, noise_multiplier = 0.5 }),
    optimizer = ms.optim.adamw { lr = 1e-3 },
    data = ms.data.synthetic { batch_size = 2, seq_length = 32 }, -- of each rank; no two ranks see the same samples
    parallel = parallel,
  }
  local report
  for _ = 1, 3 do report = trainer:step() end
  return report, trainer
end

if rank == 0 then
  print(("%-22s %10s %12s %12s %14s"):format(world .. " ranks", "loss", "parameters", "gradients", "optimizer"))
end
for _, wrapper in ipairs {
  { "ddp", ms.ddp {} },
  { "fsdp zero2_replicated", ms.fsdp { sharding = "zero2_replicated" } },
  { "fsdp zero2", ms.fsdp { sharding = "zero2" } },
  { "fsdp zero3", ms.fsdp { sharding = "zero3" } },
} do
  local report = train(wrapper[2])
  if rank == 0 then
    local held = report.sharding
    print(("%-22s %10.6f %9.2f MiB %8.2f MiB %10.2f MiB"):format(wrapper[1], report.loss, held.parameter_bytes / 2 ^ 20,
      held.gradient_bytes / 2 ^ 20, held.optimizer_bytes / 2 ^ 20))
  end
end

-- Each rank's own norms are complete; gathered they are the same everywhere.
local report, trainer = train(ms.fsdp { sharding = "zero3" })
local own = table.concat(report.norms, " ")
print(("rank %d: own norms %s, %d of all ranks"):format(rank, own, #report.all_norms))
assert(ms.dist.all_reduce(report.all_norms[1], "max") == ms.dist.all_reduce(report.all_norms[1], "min"))

-- To read or save parameters they must be whole: all ranks together.
trainer:gather()
local norm = trainer.model:parameter("model.norm.weight"):norm()
if rank == 0 then print("norm of the final norm's weight", norm) end
