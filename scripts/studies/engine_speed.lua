--- Question: what does each clipping engine cost over plain training, in time and memory?
-- Inputs: none (synthetic data). Outputs: a run folder, the overhead table, figures.
-- Run: moonshard sweep engine_speed [--set model=dit-tiny] [--set seq_length=512] [--set batch_size=2] [--resume DIR]
local ms = require "moonshard"

local runs = ms.sweep {
  name = "engine_speed", model = "llama3-tiny", task = "auto", batch_size = 8, iters = 10, warmup = 2,
  grid = { mode = { "none", "materialize", "ghost", "flash", "bookkeeping", "flash_bookkeeping", "auto" } },
}:run()

if runs then  -- nil after --dry-run
  print()
  print(runs:overhead { baseline = "none" })
  for _, path in ipairs(runs:plot "all") do print("picture: " .. path) end
end
