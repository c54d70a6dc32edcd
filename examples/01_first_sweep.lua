--- The first experiment: what does it cost to keep every sample's gradient?
-- Inputs: none. Outputs: a run folder in results/, a table, PNG files.
-- Run: moonshard run examples/01_first_sweep.lua
local ms = require "moonshard"

local sweep = ms.sweep {
  name = "first", model = "llama3-tiny", task = "classify", batch_size = 4, iters = 5,
  grid = { mode = { "none", "materialize" }, seq_length = { 32, 64, 128 } },
}
local runs = sweep:run()

print()
print(runs:overhead { baseline = "none" })
print()
for _, path in ipairs(runs:plot "all") do print("picture: " .. path) end
print(("look at it: %s view %s"):format(arg and arg[-1] or "moonshard", runs.path))
