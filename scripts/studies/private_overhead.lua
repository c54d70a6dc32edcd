--- Question: what does private training cost over plain training, as the batch grows?
-- Inputs: none (synthetic data). Outputs: a run folder, the overhead table, figures.
-- Run: moonshard sweep private_overhead [--set model=llama3-tiny] [--set seq_length=64] [--resume DIR]
require "moonshard"
local study_overhead = require "moonshard.studies.overhead"

study_overhead {
  name = "private_overhead", model = "linear-tiny", iters = 10, warmup = 2,
  grid = { mode = { "none", "materialize" }, batch_size = { 16, 32, 64, 128 } },
}
