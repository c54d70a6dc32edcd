--- Question: is the exposed communication of real ranks what the plan simulates? Two to four CPU ranks over Gloo, one thread each.
-- Inputs: none. Outputs: profiles of this machine with as many ranks at work at once, a run folder of measured points, a table.
-- Run: moonshard run scripts/bench/plan_gloo.lua [--ranks 2 4] [--seconds 20] [--out results] [--iters 8]
--
-- The profile is calibrated by all ranks at once, each with one thread, so that what they take from each other (memory bandwidth, cores) is
-- in it; collectives are timed alone, between the same ranks. A fair comparison needs as many free cores as ranks, and as many again for
-- Gloo's threads: the table says how many there were, and what else used them.
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local shell = require "moonshard.shell"
local text_table = require "moonshard.text_table"
local this_file = debug.getinfo(1, "S").source:match "^@(.*)$"

local given = command_line.parse("plan_gloo", arg, {
  { name = "ranks", kind = "int", list = true, doc = "numbers of ranks (2 4)" },
  { name = "seconds", kind = "number", doc = "of a calibration (20)" },
  { name = "iters", kind = "int", doc = "measured steps of a point (8)" },
  { name = "out", kind = "text", doc = "folder for the run folders (results)" },
  { name = "profile", kind = "text", value = "FILE", doc = "what a process of the calibration is started with" },
  { name = "collectives", kind = "text", value = "FILE", doc = "what a rank of it is started with" },
})
local out, seconds = given.out or "results", given.seconds or 20

if given.profile then -- one of several processes at once
  native.plan.write_profile(native.plan.calibrate("cpu", seconds), given.profile)
  return
end
if given.collectives then -- one of the ranks
  local measured = native.plan.collectives("cpu", math.max(2, seconds / 3))
  if ms.dist.rank() == 0 then
    local file = assert(io.open(given.collectives, "w"))
    file:write(native.records.to_json(measured))
    file:close()
  end
  ms.dist.barrier()
  return
end

--- Steps in which communication counts: layers wide enough for messages of megabytes, few samples.
local base = { model = "llama3-tiny", task = "lm", device = "cpu", threads = 1, mode = "none", optimizer = "sgd", vocab_size = 2048,
  hidden_dim = 512, intermediate_dim = 1536, num_layers = 6, num_heads = 8, num_kv_heads = 4, batch_size = 2, seq_length = 128,
  parallel = "fsdp", sharding = "zero3", backward_prefetch = "pre", forward_prefetch = true, wrap = "module" }
local variants = {
  {}, { sharding = "zero2" }, { parallel = "ddp" }, { batch_size = 4 }, { batch_size = 1 },
  { backward_prefetch = "none", forward_prefetch = false }, { mode = "bookkeeping" }, { sharding = "zero2", batch_size = 4 },
  { parallel = "ddp", batch_size = 4 }, { hidden_dim = 768, intermediate_dim = 2304 },
}

local function complete(variant)
  local whole = lists.merged(base, variant)
  if whole.parallel == "ddp" then
    for _, name in ipairs { "sharding", "wrap", "backward_prefetch", "forward_prefetch" } do whole[name] = nil end
  end
  return whole
end

local function name_of(variant)
  local words = {}
  for name, value in pairs(variant) do words[#words + 1] = ("%s = %s"):format(name, tostring(value)) end
  table.sort(words)
  return #words > 0 and table.concat(words, ", ") or "zero3"
end

local program = native.launch.program "moonshard"
local alone = { variables = { OMP_NUM_THREADS = "1" } }

--- Profiles of as many processes at once, of which the first counts.
local function profile_of(ranks, file)
  local children = {}
  for i = 1, ranks do
    children[i] = native.launch.start({ program, "run", this_file, "--profile", ("%s.%d"):format(file, i), "--seconds", tostring(seconds) },
      ("%s.%d.log"):format(file, i), alone)
  end
  for i, child in ipairs(children) do
    local ended
    repeat
      ended = native.launch.poll(child)
      if not ended then os.execute "sleep 0.2" end
    until ended
    if ended.exit_code ~= 0 then error(("plan_gloo: calibration failed: see %s.%d.log"):format(file, i), 0) end
  end
  return native.records.read_json(file .. ".1")
end

local function calibrated(ranks)
  os.execute(("mkdir -p '%s'"):format(out))
  local file = ("%s/cpu_%d_ranks.json"):format(out, ranks)
  print(("calibrating with %d processes at once, %g s; then their collectives"):format(ranks, seconds))
  local profile = profile_of(ranks, file)
  local said, good = shell.run({ program, "run", "--nproc", tostring(ranks), this_file, "--collectives", file .. ".collectives",
    "--seconds", tostring(seconds) }, ("%s/collectives_%d.log"):format(out, ranks), alone)
  if not good then error("plan_gloo: collectives failed: " .. said:sub(-600), 0) end
  profile.collectives = native.records.read_json(file .. ".collectives")
  profile.name = ("cpu with %d ranks"):format(ranks)
  native.plan.write_profile(profile, file)
  return file
end

local function percent(predicted, measured) return 100 * (predicted / measured - 1) end

local rows, errors = {}, {}
for _, ranks in ipairs(given.ranks or { 2, 4 }) do
  local machine = calibrated(ranks)
  for _, variant in ipairs(variants) do
    local options = complete(variant)
    local runs = ms.sweep(lists.merged(options, { name = ("gloo_%d"):format(ranks), out = out, nproc = ranks, iters = given.iters or 8,
      warmup = 2, grid = { seed = { 1 } } })):run()
    local point = runs.points[1]
    if point.status ~= "ok" then error(("plan_gloo: %s: %s"):format(name_of(variant), tostring(point.error)), 0) end
    local plan = native.plan.predict(options, { machine = machine, gpus = ranks, link = "instant" })
    local exposed, step = point.metrics.comm_exposed_ms, point.metrics.median_time_ms
    errors[#errors + 1] = math.abs(percent(plan.exposed_ms, exposed))
    rows[#rows + 1] = { ranks, name_of(variant), exposed, plan.exposed_ms, percent(plan.exposed_ms, exposed), point.metrics.comm_work_ms,
      plan.communication_ms, step, plan.step_ms, percent(plan.step_ms, step), point.result.load.other_cpu_percent or 0 }
  end
end
print(text_table.format({ "ranks", "point", "exposed ms measured", "predicted", "%", "collectives ms", "predicted", "step ms", "predicted",
  "%", "other CPU %" }, rows))
table.sort(errors)
print(("exposed communication: %d points, error median %.1f %%, worst %.1f %%, within 15 %%: %d; %d cores"):format(#errors,
  errors[math.ceil(#errors / 2)], errors[#errors], #lists.select(errors, function(e) return e <= 15 end),
  tonumber(shell.first_line "nproc") or 0))
