--- Question: where does the memory of private diffusion training go, and which engine trades it best for time? (document 004)
-- Inputs: none (noise, timesteps, labels). Outputs: a run folder with {experiment}_result.json (breakdown and snapshots),
-- memory_breakdown_comparison, memory_timeline, performance_tradeoff, summary.txt, and what became of the document's claims.
-- Run: moonshard sweep dit_memory [--preset tiny|full|document|xl2|against_llm] [--experiment vanilla] [--attention flash standard]
--      [--grad-accum 1 2] [--help]
local ms = require "moonshard"
local claims = require "moonshard.studies.claims"
local dit_result = require "moonshard.studies.dit_result"
local document = require "moonshard.studies.document"
local lists = require "moonshard.lists"
local llm_against_dit = require "moonshard.studies.llm_against_dit"
local slow = require "moonshard.studies.slow"

local experiments = { "vanilla", "ghost", "flash_clip", "bookkeeping", "flash_clip_bookkeeping" }
-- Warm-up, and enough samples to tell engines apart; three watched steps show what a step gives back.
local function full_size(model)
  return { model = model, task = "denoise", optimizer = "adam", batch_size = 16, iters = 8, warmup = 3, watch_steps = 3, compile = "no",
    grid = { mode = experiments } }
end

return document.main({
  name = "dit_memory",
  about = "Memory by component and time of five ways to train a diffusion transformer.\n"
    .. "Preset full: DiT-L/8 on 256-pixel images (1024 tokens), batch 16, with warm-up; document: the document's own batch 2 and three\n"
    .. "steps without warm-up; xl2: DiT-XL/2 on latents; tiny: a small DiT on the CPU; against_llm, against_llm_tiny: a DiT and a\n"
    .. "language model with as many tokens in a step (8192).\n"
    .. "Variants by flags: --image-size 128, --patch-size 4 8, --num-layers 12, --grad-accum 1 2 4, --nproc 2,\n"
    .. "--attention flash standard, --model dit-xl/2, --hidden-dim, --num-heads, --num-classes, --in-channels.",
  output_dir = "memory_profiling_results",
  presets = {
    tiny = { model = "dit-tiny", task = "denoise", optimizer = "adam", image_size = 64, batch_size = 2, iters = 5, warmup = 2,
      watch_steps = 3, threads = 2, grid = { mode = experiments } },
    full = full_size "dit-l/8", xl2 = full_size "dit-xl/2",
    document = lists.merged(full_size "dit-l/8", { batch_size = 2, iters = 3, warmup = 0, watch_steps = 1 }),
    against_llm = llm_against_dit.plan(experiments), against_llm_tiny = llm_against_dit.tiny_plan(experiments),
  },
  baseline = "vanilla",
  seed_result = dit_result.seed_result,
  figures = { "memory_breakdown_comparison", "memory_timeline", "performance_tradeoff" },
  plan = function(plan)
    if ((plan.nproc or 1) > 1 or plan.world) and not plan.parallel then plan.parallel = "fsdp" end
    if plan.zip then return plan end  -- of several models
    -- On the CPU: this process only counts tokens, and must not hold a GPU beside its points.
    local options = ms.resolve { model = plan.model, image_size = plan.image_size, patch_size = plan.patch_size, device = "cpu" }.options
    if not plan.grid.image_size and not plan.grid.patch_size then
      print(("dit_memory: %d x %d pixels in patches of %d: %d tokens"):format(options.image_size, options.image_size, options.patch_size,
        (options.image_size / options.patch_size) ^ 2))
    end
    return plan
  end,
  report = function(runs)
    local sections = { ms.analyze.memory(runs), ms.analyze.overhead(runs, { baseline = "vanilla" }) }
    for _, section in ipairs { llm_against_dit.table(runs) or false, slow.hints(runs) or false } do
      if section then sections[#sections + 1] = section end
    end
    return sections
  end,
  expect = {
    { claim = "vanilla needs less memory than ghost clipping", check = claims.memory("ghost", "none", 1) },
    { claim = "vanilla needs less memory than flash clipping", check = claims.memory("flash", "none", 1) },
    { claim = "ghost clipping needs less memory than bookkeeping", check = claims.memory("ghost", "bookkeeping", nil, 1) },
    { claim = "flash clipping needs less memory than with bookkeeping", check = claims.memory("flash", "flash_bookkeeping", nil, 1) },
    { claim = "ghost and flash clipping need about the same memory (within 10 %)", check = claims.memory("flash", "ghost", 0.9, 1.1) },
    { claim = "flash clipping is faster than ghost clipping", check = claims.time("flash", "ghost", nil, 1, claims.flash_is_cheaper) },
    { claim = "bookkeeping with flash clipping has the best trade-off of time and memory",
      check = claims.tradeoff { best = "flash_bookkeeping", of = { "ghost", "flash", "bookkeeping", "flash_bookkeeping" } } },
  },
}, ...)
