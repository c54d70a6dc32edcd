--- Question: what do ghost and flash clipping cost a sharded Llama 3, in memory and time, as sequences grow? (document 000)
-- Inputs: none (synthetic batches of ids and labels). Outputs: a run folder with {mode}_seq{N}_result.json, four figures,
-- summary.txt, and what became of the document's claims.
-- Run: moonshard sweep fsdp_llama3 [--preset tiny|full|document|wide] [--seq-lengths 1024 2048] [--mode ghost_fsdp] [--help]
local ms = require "moonshard"
local claims = require "moonshard.studies.claims"
local document = require "moonshard.studies.document"
local lists = require "moonshard.lists"

local modes = { "no_dp", "ghost_fsdp", "flash_fsdp" }
local all_modes = lists.extend({}, modes, { "bookkeeping_fsdp", "flash_bookkeeping_fsdp", "auto" })
local own = {
  model = "llama3.1-8b", task = "classify", dtype = "float32", param_dtype = "bfloat16", optimizer = "sgd", parallel = "fsdp", nproc = 2,
  batch_size = 2, iters = 3, warmup = 1, grid = { mode = modes, seq_length = { 1024, 2048, 4096 } },
}
-- More steps than the document's three, so that engines can be told apart, and the engines that it does not have. Several ranks run no
-- graphs: without the wish for one no steps are spent on it.
local full = lists.merged(own, { iters = 5, warmup = 2, compile = "no", grid = { mode = all_modes, seq_length = { 1024, 2048, 4096 } } })
local wide = lists.merged(full, { grid = { mode = all_modes, seq_length = { 512, 1024, 2048, 4096, 8192 } } })

return document.main({
  name = "fsdp_llama3",
  about = "Memory and time of training modes over sequence lengths, one process per experiment, with FSDP on two ranks.\n"
    .. "Preset full: Llama 3.1 8B at 1024, 2048, 4096 tokens, six modes; document: the document's three modes, three steps each; wide:\n"
    .. "five lengths; tiny: a small Llama on two CPU ranks. Models may have their names on the Hugging Face Hub.",
  presets = {
    tiny = { model = "llama3-tiny", task = "classify", optimizer = "adamw", parallel = "fsdp", nproc = 2, threads = 1, batch_size = 2,
      iters = 3, warmup = 1, grid = { mode = modes, seq_length = { 128, 256, 512 } } },
    full = full, document = own, wide = wide,
  },
  baseline = "no_dp",
  figures = { "memory_comparison", "time_comparison", "memory_vs_time_tradeoff", "overhead_analysis" },
  plan = function(plan)
    -- The sizes of Llama 3.1; the two differ in the positions alone, which no figure here depends on.
    if plan.model == "meta-llama/Meta-Llama-3-8B-Instruct" then plan.model = "llama3.1-8b" end
    return plan
  end,
  report = function(runs) return { ms.analyze.overhead(runs, { baseline = "no_dp" }) } end,
  expect = {
    { claim = "no_dp is the fastest: ghost clipping takes longer", check = claims.time("ghost", "none", 1) },
    { claim = "no_dp is the fastest: flash clipping takes longer", check = claims.time("flash", "none", 1) },
    { claim = "ghost clipping needs more memory than no_dp", check = claims.memory("ghost", "none", 1) },
    { claim = "flash clipping needs less memory than ghost clipping", check = claims.memory("flash", "ghost", nil, 1) },
    { claim = "flash clipping is faster than ghost clipping", check = claims.time("flash", "ghost", nil, 1, claims.flash_is_cheaper) },
  },
}, ...)
