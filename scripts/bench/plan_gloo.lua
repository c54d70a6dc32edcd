--- Question: is the exposed communication of real ranks what the plan simulates? Two to four CPU ranks over Gloo, which share the cores.
-- Inputs: none, or folders that it made. Outputs: per number of ranks a run folder with the machine's profile, a table.
-- Run: moonshard run scripts/bench/plan_gloo.lua [--ranks 2 4] [--link 1gbit] [--seconds 15] [--out results] [--iters 5]
--      moonshard run scripts/bench/plan_gloo.lua --check examples/results/plan_gloo_2 examples/results/plan_gloo_4
--
-- The profile is calibrated as moonshard plan --calibrate --gpus N has it: by all ranks at once, so that what they take from each other
-- (memory bandwidth, cores) is in it; collectives are timed between the same ranks, with the processor time of their threads. --link lets
-- the ranks see each other through a network of their own with that rate (Linux: unshare, and tc of iproute2), as between machines:
-- without, copies through the loopback compete for the cores, and how long ranks wait for each other differs by a factor of two from run to
-- run on two cores.
local ms = require "moonshard"
local command_line = require "moonshard.arguments"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local rank_calibration = require "moonshard.rank_calibration"
local shell = require "moonshard.shell"
local text_table = require "moonshard.text_table"
local this_file = debug.getinfo(1, "S").source:match "^@(.*)$"

local given = command_line.parse("plan_gloo", arg, {
  { name = "ranks", kind = "int", list = true, doc = "numbers of ranks (2 4)" },
  { name = "link", kind = "text", value = "RATE", doc = "of a network of their own, as tc has it: 1gbit (none: the loopback)" },
  { name = "seconds", kind = "number", doc = "of a calibration (15)" },
  { name = "iters", kind = "int", doc = "measured steps of a point (5)" },
  { name = "out", kind = "text", doc = "folder for the run folders (results)" },
  { name = "check", kind = "text", list = true, value = "FOLDER", doc = "compare what was measured before" },
})
local out, seconds, iters, numbers = given.out or "results", given.seconds or 15, given.iters or 5, given.ranks or { 2, 4 }
local program = native.launch.program "moonshard"

--- Steps in which communication counts: layers wide enough for messages of megabytes, few samples.
local base = { model = "llama3-tiny", task = "lm", device = "cpu", mode = "none", optimizer = "sgd", vocab_size = 2048,
  hidden_dim = 512, intermediate_dim = 1536, num_layers = 6, num_heads = 8, num_kv_heads = 4, batch_size = 2, seq_length = 128,
  parallel = "fsdp", sharding = "zero3", backward_prefetch = "pre", forward_prefetch = true, wrap = "module" }
local variants = {
  {}, { sharding = "zero2" }, { parallel = "ddp" }, { batch_size = 4 }, { batch_size = 1 },
  { backward_prefetch = "none", forward_prefetch = false }, { mode = "bookkeeping" }, { sharding = "zero2", batch_size = 4 },
  { parallel = "ddp", batch_size = 4 }, { hidden_dim = 768, intermediate_dim = 2304 },
}

local function name_of(options)
  local words = { options.parallel == "ddp" and "ddp" or options.sharding }
  if options.mode ~= base.mode then words[#words + 1] = options.mode end
  if options.hidden_dim ~= base.hidden_dim then words[#words + 1] = "width " .. options.hidden_dim end
  words[#words + 1] = "batch " .. options.batch_size
  if options.backward_prefetch == "none" then words[#words + 1] = "no prefetch" end
  return table.concat(words, ", ")
end

local function calibrated(ranks)
  os.execute(("mkdir -p '%s'"):format(out))
  local file = ("%s/cpu_%d_ranks.json"):format(out, ranks)
  local profile = rank_calibration.measure("cpu", seconds, ranks)
  profile.name = ("cpu with %d ranks"):format(ranks)
  native.plan.write_profile(profile, file)
  return file
end

local function measure(ranks)
  local points = lists.map(variants, function(variant) return lists.merged(base, variant) end)
  local sweep = ms.sweep { name = ("gloo_%d"):format(ranks), out = out, nproc = ranks, iters = iters, warmup = 2,
    zip = lists.columns(points) }
  local machine = calibrated(ranks)
  local runs = sweep:run()
  os.rename(machine, runs.path .. "/machine.json")
  return runs.path
end

local function percent(predicted, measured) return 100 * (predicted / measured - 1) end

local rows, errors = {}, {}
local function compare(folder)
  for _, point in ipairs(ms.load(folder).points) do
    local options = point.options
    if point.status ~= "ok" then error(("plan_gloo: %s: %s"):format(name_of(options), tostring(point.error)), 0) end
    local ranks = #point.result.ranks
    local plan = native.plan.predict(options, { machine = folder .. "/machine.json", gpus = ranks })
    local exposed, step = point.metrics.comm_exposed_ms, point.metrics.median_time_ms
    errors[#errors + 1] = math.abs(percent(plan.exposed_ms, exposed))
    rows[#rows + 1] = { ranks, name_of(options), exposed, plan.exposed_ms, percent(plan.exposed_ms, exposed), point.metrics.comm_work_ms,
      plan.communication_ms, step, plan.step_ms, percent(plan.step_ms, step) }
  end
end

if given.link then -- once more, in a network of this process alone
  local inside = 'ip link set lo up && tc qdisc add dev lo root tbf rate %s burst 128kb limit 64mb && exec "$@"'
  local words = { "unshare", "-rn", "sh", "-c", inside:format(given.link), "plan_gloo", program, "run", this_file, "--out", out,
    "--seconds", tostring(seconds), "--iters", tostring(iters), "--ranks" }
  lists.extend(words, lists.map(numbers, tostring))
  os.exit(os.execute(table.concat(lists.map(words, shell.quoted), " ")) == 0 and 0 or 1)
end
local folders = given.check or lists.map(numbers, measure)
for _, folder in ipairs(folders) do compare(folder) end
print(text_table.format({ "ranks", "point", "exposed ms measured", "predicted", "%", "collectives ms", "predicted", "step ms", "predicted",
  "%" }, rows))
table.sort(errors)
print(("exposed communication: %d points, error median %.1f %%, worst %.1f %%, within 15 %%: %d"):format(#errors,
  errors[math.ceil(#errors / 2)], errors[#errors], #lists.select(errors, function(e) return e <= 15 end)))
