--- Question: what does pre-training under the guarantee of VaultGemma (epsilon <= 2 at delta = 1.1e-10 for a sequence) cost and reach here?
-- Inputs: a folder of text (--data-folder) and its tokenizer; without them sample text and a small BPE are made. Outputs: a run folder
-- with the loss of every step, epsilon, noise and tokens/s; figures loss_curve, memory and phases; summary.txt.
-- Run: moonshard sweep vaultgemma [--preset tiny|full] [--data-folder DIR --tokenizer DIR] [--weights DIR] [--iters 200] [--help]
local ms = require "moonshard"
local document = require "moonshard.studies.document"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local sample_text = require "moonshard.studies.sample_text"
local usage = require "moonshard.usage"

-- The published guarantee (VaultGemma's model card): the unit is a sequence of 1024 tokens after packing.
local target = { epsilon = 2, delta = 1.1e-10 }

-- Samples are drawn by Poisson subsampling. batch_size is the most that one micro-batch holds: a larger draw is split into
-- micro-batches of nearly equal size, and no sample is ever dropped, which the guarantee rests on.
local function plan_of(model, sizes)
  return lists.merged({ model = model, task = "lm", optimizer = "adam", sampler = "poisson", target_epsilon = target.epsilon,
    delta = target.delta, grid = { mode = { "auto" } } }, sizes)
end

local function add_data(plan, given)
  if given.data_folder and not native.launch.exists(given.data_folder) then
    usage.fail("vaultgemma: option '--data-folder': expected a folder of text, got '%s', which is not there", given.data_folder)
  end
  if given.data_folder then return end
  local tokenizer
  plan.data_folder, tokenizer = sample_text.write((given.output_dir or "results") .. "/sample_text", given.dry_run)
  if not given.tokenizer then plan.tokenizer = tokenizer end
  print(("vaultgemma: sample text in %s, tokenizer %s; --data-folder DIR --tokenizer DIR for your own"):format(
    plan.data_folder, plan.tokenizer))
end

--- A row per point: what was promised, what it took, what it reached.
local function outcome(runs)
  local lines = { ("%-22s %8s %10s %8s %8s %6s %10s %10s %10s"):format("point", "epsilon", "delta", "noise", "rate", "steps",
    "first loss", "last loss", "tokens/s") }
  for _, point in ipairs(runs:select "ok") do
    local result = point.result
    local privacy, steps = result.privacy, result.steps
    lines[#lines + 1] = ("%-22s %8s %10.2g %8.3f %8.4f %6d %10.4f %10.4f %10.0f"):format(point.id:sub(1, 22),
      privacy.epsilon and ("%.4f"):format(privacy.epsilon) or "none", privacy.delta or 0, privacy.noise_multiplier or 0,
      privacy.sampling_rate or 0, privacy.steps or 0, steps[1].loss, steps[#steps].loss, result.metrics.tokens_per_s or 0)
  end
  return table.concat(lines, "\n")
end

--- A run that spent more than was promised, or can claim nothing, is no result.
local function check_promise(runs)
  for _, point in ipairs(runs:select "ok") do
    local privacy, options = point.result.privacy, point.result.options
    if not privacy.epsilon or privacy.epsilon > options.target_epsilon then
      error(("vaultgemma: point %s: expected epsilon <= %g at delta %g, got %s"):format(point.id, options.target_epsilon, options.delta,
        privacy.epsilon or privacy.why_no_epsilon), 0)
    end
  end
end

return document.main({
  name = "vaultgemma",
  about = "Private training of a VaultGemma from a folder of text to epsilon <= 2 at delta = 1.1e-10.\n"
    .. "Preset full: VaultGemma 1B, 1024 tokens, bf16 with float32 weights, an expected batch of 64 in micro-batches of at most 8;\n"
    .. "tiny: the same blocks at a small size on the CPU. The noise is calibrated for the steps of the run (--iters).",
  presets = {
    tiny = plan_of("vaultgemma-tiny", { seq_length = 64, batch_size = 8, expected_batch_size = 32, iters = 30, warmup = 0, lr = 2e-3,
      threads = 2 }),
    full = plan_of("vaultgemma-1b", { seq_length = 1024, batch_size = 8, expected_batch_size = 64, iters = 20, warmup = 0, lr = 1e-4,
      param_dtype = "bfloat16" }),
  },
  figures = { "memory_breakdown_comparison", "phases" },
  plan = function(plan, given)
    add_data(plan, given)
    return plan
  end,
  report = function(runs) return { outcome(runs) } end,
  after = function(runs, given)
    check_promise(runs)
    if given.no_plots or #runs:select "ok" == 0 then return end
    local path = runs.path .. "/visualizations/loss_curve.svg"
    local drawn, figure = pcall(ms.plot, { runs, x = "step", y = "loss", group = "mode", title = "Loss under the budget", out = path })
    print(drawn and "picture: " .. path or "figures: " .. tostring(figure))
  end,
}, ...)
