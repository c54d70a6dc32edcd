--- Flags that every document script takes: its own, those of the profiling suites, those of a sweep, and all
-- experiment options. The suites' flags are accepted as written, wherever they have an equivalent here.
local arguments = require "moonshard.arguments"
local lists = require "moonshard.lists"

local M = {}

--- The suites' names for options; the schema's own aliases come on top.
M.seed_names = {
  mode = { "experiment", "modes", "experiments" },
  sharding = { "strategy", "strategies" },
  iters = { "num_steps" },
  grad_accum = { "gradient_accumulation_steps", "grad_accum_steps" },
  seq_length = { "max_length" },
  nproc = { "nproc_per_node", "num_gpus" },
}

--- Flags of the script itself.
M.own = {
  { name = "help", kind = "boolean", doc = "this text" },
  { name = "preset", kind = "text", doc = "tiny: two CPU cores, minutes. full: the document's sizes; the default where there is a GPU" },
  { name = "output_dir", kind = "text", aliases = { "out_dir" },
    doc = "folder that run folders are made in; with --input-dir, that of the figures" },
  { name = "output", kind = "text", doc = "also write the result of a single experiment to this file" },
  { name = "plots_only", kind = "text", doc = "draw the figures of this folder and run nothing" },
  { name = "input_dir", kind = "text", doc = "the same, as the suites spell it" },
  { name = "no_plots", kind = "boolean", doc = "write plot specs and pictures later" },
  { name = "cpu", kind = "boolean", doc = "run on the CPU (device = cpu)" },
  { name = "use_profiler", kind = "boolean", aliases = { "enable_profiling" }, doc = "write traces (profile = trace)" },
  { name = "verbose", kind = "boolean", doc = "print more: phases and owners of every point" },
  { name = "token", kind = "text", doc = "of the suites; nothing is downloaded here, see --weights" },
}

--- Flags of a sweep, for a script that is started by `moonshard run`; `moonshard sweep` takes them itself.
M.of_sweep = {
  { name = "resume", kind = "text", doc = "go on in this run folder" },
  { name = "dry_run", kind = "boolean", doc = "list the points, run none" },
  { name = "retry", kind = "int", doc = "times that a failed point is tried again" },
  { name = "timeout", kind = "number", doc = "seconds that a point may take" },
  { name = "fail_fast", kind = "boolean", doc = "stop at the first point that fails" },
  { name = "only", kind = "pair", value = "KEY=GLOB",
    doc = "run these points of the plan now, e.g. mode=flash*; --resume runs the others" },
  { name = "budget", kind = "number", value = "S", doc = "begin no point that may not end within S seconds; --resume goes on" },
}

--- All flags of a script; the first definition of a name wins.
-- @tparam {table,...} own flags of the document
-- @tparam {table,...} options ms.options()
function M.all(own, options)
  local option_flags = arguments.option_flags(options)
  for _, flag in ipairs(option_flags) do flag.aliases = lists.extend({}, flag.aliases, M.seed_names[flag.name] or {}) end
  return lists.extend({}, own or {}, M.own, M.of_sweep, option_flags)
end

--- Puts given experiment options into a plan: an axis takes the values; another option takes one value, or becomes an
-- axis when several are given.
-- @tparam table plan options and grid; changed
-- @tparam table given values by flag name
function M.apply(plan, given, flags)
  plan.grid = plan.grid or {}
  for _, flag in ipairs(flags) do
    local values = flag.option and given[flag.name]
    if type(values) == "table" then  -- a script's own flag of the same name is the script's business
      if plan.grid[flag.option] or #values > 1 then
        plan.grid[flag.option], plan[flag.option] = values, nil
      else
        plan[flag.option] = values[1]
      end
      if plan.zip then plan.zip[flag.option] = nil end
    end
  end
end

return M
