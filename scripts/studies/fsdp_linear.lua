--- Question: what does a rank hold under DDP and under FSDP, with every way to wrap, prefetch and offload? (document 003)
-- Inputs: none (random vectors). Outputs: a run folder, the tutorial's memory rows of every stage, peaks and reserved memory beside the
-- tutorial's and PyTorch's own on this machine, stage_memory.png, a trace per configuration in traces/<configuration>/ under the names that
-- TensorBoard's profiler plugin opens, and what became of the tutorial's figures.
-- Run: moonshard sweep fsdp_linear [--data_parallel ddp] [--batch_size 8192] [--cpu_offload] [--memory-optimized] [--crossed]
--      [--with-torch=false] [--help]
local ms = require "moonshard"
local document = require "moonshard.studies.document"
local linear = require "moonshard.studies.linear_configurations"
local torch_memory = require "moonshard.studies.torch_memory"

local spec = {
  name = "fsdp_linear",
  about = "Memory of one rank at the stages of a run of 8 x Linear(16384, 16384), under DDP and FSDP: the defaults, then one choice\n"
    .. "changed at a time, and once more with the whole model made first, as the tutorial does. Options given by flags make a single\n"
    .. "configuration. Preset full: batch 8192 on 8 ranks; tiny: two CPU ranks.\n"
    .. "A choice is --data_parallel ddp|fsdp, --auto_wrap_policy module_wrap|size_based|none, --min_num_params N, --forward_prefetch,\n"
    .. "--backward_prefetch BACKWARD_PRE|BACKWARD_POST|NONE, --cpu_offload.",
  flags = {
    { name = "memory_optimized", kind = "boolean", aliases = { "memory_optimised" }, doc = "the tutorial's preset: fsdp, cpu_offload" },
    { name = "speed_optimized", kind = "boolean", aliases = { "speed_optimised", "performance_optimized" },
      doc = "the tutorial's preset: fsdp, forward_prefetch, BACKWARD_POST" },
    { name = "crossed", kind = "boolean", doc = "every combination of choices (37 points) instead of one change at a time" },
    { name = "no_traces", kind = "boolean", doc = "no traces (profile = phases)" },
    { name = "with_torch", kind = "boolean",
      doc = "measure the tutorial's program in PyTorch, too; the default at full size on a GPU; python3, or MOONSHARD_PYTHON, runs it" },
  },
  presets = {
    tiny = { model = "linear-tiny", task = "regress", min_num_params = 131072, nproc = 2, threads = 1, batch_size = 1024, iters = 3,
      warmup = 1 },
    full = { model = "linear", task = "regress", min_num_params = 100000000, nproc = 8, batch_size = 8192, iters = 3, warmup = 2,
      compile = "no" },
  },
  figures = { "stage_memory" },
  seed_result = function() return nil end,
  plan = function(plan, given)
    linear.torch_rows = function(runs) return torch_memory.rows(runs, given.with_torch, #(ms.machine().gpus or {})) end
    return linear.plan(plan, given)
  end,
  report = function(runs, given)
    return { linear.stage_report(runs, given), linear.speed_table(runs), linear.against_tutorial(runs, linear.torch_rows(runs)),
      linear.predicted_table(), ms.analyze.bottleneck(runs) }
  end,
  after = function(runs)
    for _, path in ipairs(linear.collect_traces(runs)) do print("trace: " .. path) end
  end,
  expect = linear.expect,
}
return document.main(spec, ...)
