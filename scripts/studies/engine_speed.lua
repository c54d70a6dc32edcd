--- Question: what does each clipping engine cost over plain training, in time and memory?
-- Inputs: none (synthetic data). Outputs: a run folder, the overhead table, figures.
-- Run: moonshard sweep engine_speed [--set model=dit-tiny] [--set seq_length=512] [--set batch_size=2] [--resume DIR]
require "moonshard"
local study_overhead = require "moonshard.studies.overhead"

study_overhead {
  name = "engine_speed", model = "llama3-tiny", task = "auto", batch_size = 8, iters = 10, warmup = 2,
  grid = { mode = { "none", "materialize", "ghost", "flash", "bookkeeping", "flash_bookkeeping", "auto" } },
}
