--- Question: what bounds flash clipping under FSDP as sequences grow: communication, memory or norms? (document 001)
-- Inputs: none (synthetic batches). Outputs: a run folder, growth of forward, backward, norms, memory and communication with T, norm
-- times per layer, a report of causes with evidence and advice, three figures; with --compare an optimisation before and after.
-- Run: moonshard sweep flash_fsdp_bottleneck [--seq-lengths 1024 2048 4096 8192 16384] [--batch-size 4] [--use-flash] [--cpu]
--      [--compare async_norms|grouped_collectives|eager_cleanup|streaming_norms|checkpointing|algorithm|tile_size|fusion] [--help]
local ms = require "moonshard"
local claims = require "moonshard.studies.claims"
local document = require "moonshard.studies.document"
local layer_norms = require "moonshard.analyze.layer_norms"
local norm_sums = require "moonshard.studies.norm_sums"
local optimizations = require "moonshard.studies.optimizations"

local chosen  -- the optimisation to compare, if any
local flash_modes = { "flash_fsdp", "flash_bookkeeping_fsdp" }
local may_verify, verified, verified_text, diagnoses = false, nil, nil, {}

--- Runs moonshard verify on the engines of the sweep, once.
local function verify_once(runs)
  if verified ~= nil or not may_verify or runs:count("ok") == 0 then return end
  print("verifying the engines against plain autograd, on one and two ranks …")
  verified, verified_text, diagnoses = optimizations.verify(runs)
end

local function verify_check(runs)
  verify_once(runs)
  if verified == nil then return nil, "moonshard verify was not run (--no-verify, or figures only)" end
  return verified, (verified_text:gsub("\n", "; "))
end
local verify_claim = { claim = "gradients are right on 1 and 2 ranks (largest difference below 1e-5)", check = verify_check }

--- Memory after a step against the peak: what cleanup gives back.
local function after_cleanup(runs)
  local worst, at
  for _, point in ipairs(runs:select("ok")) do
    for _, row in ipairs(point.result.memory_stages or {}) do
      if row.stage == "end" and row.allocated_bytes and point.metrics.peak_memory_bytes then
        local share = row.allocated_bytes / point.metrics.peak_memory_bytes
        if not worst or share > worst then worst, at = share, point end
      end
    end
  end
  if not worst then return nil, "no memory stages were recorded" end
  return worst < 0.9, ("at most %.0f %% of the peak is still allocated at the end (%s, %d tokens)"):format(100 * worst, at.options.mode,
    at.options.seq_length)
end

local function growth(quantity, mode, verdicts) return claims.growth { quantity = quantity, mode = mode, verdicts = verdicts } end

local spec = {
  name = "flash_fsdp_bottleneck",
  about = "How the phases of a clipped step grow with the sequence, under FSDP on two ranks, and what to do about it.\n"
    .. "Preset full: Llama 3.2 1B, 1K to 16K tokens, batch 4; tiny: a small Llama on two CPU ranks. Norms are summed over ranks as in the\n"
    .. "document (norm_reduce = sum): a timing mode, not private. --norm-reduce local is the private default everywhere else.",
  flags = {
    { name = "compare", kind = "text", choices = optimizations.names(), doc = "an optimisation before and after, instead of the growth" },
    { name = "use_flash", kind = "boolean", doc = "flash norms (the default); --use-flash=false: ghost norms" },
    { name = "use_fsdp", kind = "boolean", doc = "shard over ranks (the default)" },
    { name = "no_verify", kind = "boolean", doc = "do not run moonshard verify on the engines afterwards" },
    { name = "list_optimizations", kind = "boolean", doc = "what --compare compares" },
  },
  presets = {
    tiny = { model = "llama3-tiny", task = "classify", parallel = "fsdp", nproc = 2, threads = 1, batch_size = 4, norm_reduce = "sum",
      profile = "layers", iters = 5, warmup = 1, grid = { mode = flash_modes, seq_length = { 64, 128, 256, 512, 1024 } } },
    full = { model = "llama3.2-1b", task = "classify", dtype = "bfloat16", parallel = "fsdp", nproc = 2, batch_size = 4,
      norm_reduce = "sum", profile = "layers", iters = 5, warmup = 1, compile = "no",
      grid = { mode = flash_modes, seq_length = { 1024, 2048, 4096, 8192, 16384 } } },
  },
  baseline = "flash_fsdp",
  figures = { "scaling", "bottleneck", "layer_norm_times" },
  commands = { list_optimizations = function()
    for _, each in ipairs(optimizations.list) do print(("%-20s %s"):format(each.name, each.about)) end
  end },
}

function spec.plan(plan, given, preset)
  if given.use_flash == false then plan.grid.mode = { "ghost_fsdp", "bookkeeping_fsdp" } end
  if given.use_fsdp == false then plan.parallel, plan.nproc, plan.norm_reduce = "none", nil, nil end
  may_verify = not given.no_verify
  chosen = given.compare and optimizations.find(given.compare)
  if not chosen then return plan end
  optimizations.apply(plan, chosen)
  if not given.seq_length then plan.grid.seq_length = preset == "tiny" and { 128, 512 } or { 2048, 8192 } end
  spec.baseline, spec.figures, spec.expect = nil, { "before_after", "bottleneck" }, { verify_claim }
  print(("%s: %s: %s"):format(spec.name, chosen.name, chosen.about))
  return plan
end

function spec.report(runs)
  verify_once(runs)
  local norms = norm_sums.describe(runs, diagnoses)
  if chosen then return { optimizations.table(runs, chosen), ms.analyze.bottleneck(runs), norms } end
  return { ms.analyze.scaling(runs), layer_norms.analyze(runs), ms.analyze.phases(runs), ms.analyze.bottleneck(runs), norms }
end

spec.expect = {
  { claim = "forward grows as O(T)", check = growth("forward", "flash", { "O(T)" }) },
  { claim = "backward grows as O(T) with flash clipping", check = growth("backward", "flash", { "O(T)" }) },
  { claim = "backward may show O(T^2) at very long sequences", check = growth("backward", "flash", { "O(T^2)", "between" }) },
  { claim = "memory grows linearly with T", check = growth("peak memory", "flash", { "O(T)" }) },
  { claim = "the all-reduce of norms is constant in T", check = growth("norm all-reduce", "flash", { "O(1)" }) },
  { claim = "bytes communicated are constant in T", check = growth("communicated", "flash", { "O(1)" }) },
  { claim = "bookkeeping uses slightly more memory than flash clipping (up to 50 %)",
    check = claims.memory("flash_bookkeeping", "flash", 1, 1.5) },
  { claim = "memory after cleanup is reasonable (below 90 % of the peak)", check = after_cleanup },
  verify_claim,
}
return document.main(spec, ...)
