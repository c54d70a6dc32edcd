--- The Lua half of the module: fills the native table with sweeps, results, profiles and plots.
-- Loaded by luaopen_moonshard; scripts write `local ms = require "moonshard"`.
return function(ms)
  local sweep = require "moonshard.sweep"
  local runs = require "moonshard.runs"
  local profile = require "moonshard.profile"

  ms.sweep = sweep.new
  ms.load = runs.load
  ms.profile = profile.profile

  ms.document(ms.sweep, "ms.sweep", "ms.sweep { name, grid = { option = { values } }, out, … } -> Sweep",
    "A grid of experiments, each run in a process of its own. sweep:run() returns the results;"
    .. " every other key is an experiment option (ms.options()).")
  ms.document(ms.load, "ms.load", "ms.load(folder) -> Runs",
    "The results in a run folder: runs:overhead{}, runs:plot(name), runs:table().")
  ms.document(ms.profile, "ms.profile", "ms.profile(trainer, { iters, warmup }) -> Profile",
    "Times a trainer's steps: median, IQR and share of each phase, memory, loss. print it.")
end
