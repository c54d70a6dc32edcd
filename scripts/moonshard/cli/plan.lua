--- moonshard plan: what training will need on a cluster, before anything runs.
local arguments = require "moonshard.arguments"
local lists = require "moonshard.lists"
local machines = require "moonshard.plan_machines"
local native = require "moonshard.native"
local usage = require "moonshard.usage"

local flags = {
  { name = "gpu", kind = "text", value = "NAME", doc = "h200, h100, a100, cpu, this (calibrated), or the file of a profile" },
  { name = "gpus", kind = "int", doc = "GPUs of a node (1)" },
  { name = "nodes", kind = "int", doc = "machines (1)" },
  { name = "node_link", kind = "text", doc = "link between nodes (infiniband); --link is that inside of one" },
  { name = "link_gb_per_s", kind = "number", doc = "bandwidth of a GPU's link in its node and direction, instead of --link's" },
  { name = "link_latency_us", kind = "number", doc = "least time of a collective over it" },
  { name = "node_link_gb_per_s", kind = "number", doc = "bandwidth of a network adapter, instead of --node-link's" },
  { name = "node_link_latency_us", kind = "number", doc = "least time of a collective between nodes" },
  { name = "nics", kind = "number", doc = "network adapters of a node, that its GPUs share (one per GPU)" },
  { name = "slow_ranks", kind = "int", doc = "ranks that compute slower; all are then simulated" },
  { name = "slow_by", kind = "number", doc = "by how much (0.2: a fifth longer)" },
  { name = "jitter", kind = "number", doc = "every operation of a rank takes exp(jitter x normal) of its time; --seed draws them" },
  { name = "mtbf_h", kind = "number", doc = "mean hours between failures of one GPU: wall time and goodput with restarts" },
  { name = "save_every", kind = "int", doc = "steps between saves (the best interval)" },
  { name = "save_s", kind = "number", doc = "seconds that a save stops the training (a copy to host memory)" },
  { name = "write_s", kind = "number", doc = "seconds that a save is written beside it, before it counts (60)" },
  { name = "restart_s", kind = "number", doc = "seconds from a failure to the next step (300)" },
  { name = "memory_gb", kind = "number", doc = "memory that a rank may use; else the device's" },
  { name = "global_batch", kind = "int", doc = "samples of a step, of all ranks; split into micro-batches" },
  { name = "examples", kind = "number", doc = "samples of the data, for epochs and epsilon" },
  { name = "tokens", kind = "number", doc = "tokens to train on" },
  { name = "steps", kind = "number", doc = "steps of the run" },
  { name = "wall_time_h", kind = "number", doc = "hours that the run may take" },
  { name = "price_per_gpu_hour", kind = "number", doc = "price of a GPU hour, in any currency" },
  { name = "private", kind = "boolean", doc = "try the private engines" },
  { name = "keep", kind = "int", doc = "plans that are shown (10)" },
  { name = "no_search", kind = "boolean", doc = "predict the configuration as it is given" },
  { name = "explain", kind = "boolean", doc = "every term of the best plan" },
  { name = "json", kind = "boolean", doc = "the plan as JSON" },
  { name = "script", kind = "text", value = "FILE", doc = "write the Lua script that runs the best plan" },
  { name = "sweep", kind = "text", value = "FILE", doc = "write a sweep around the best plan" },
  { name = "trace", kind = "text", value = "FILE", doc = "write the simulated step as a Chrome trace" },
  { name = "simulate", kind = "int", optional = true, value = "STEPS", doc = "write steps of the best plan as a run folder (5)" },
  { name = "out", kind = "text", value = "FOLDER", doc = "simulate: where the run folder is made (results)" },
  { name = "calibrate", kind = "number", optional = true, value = "SECONDS",
    doc = "measure this machine first (60); with --gpus N also the collectives of N ranks" },
  { name = "device", kind = "text", doc = "calibrate: cpu or cuda" },
}

-- Beside JSON on standard output nothing else is printed there.
local function say(given, path) (given.json and io.stderr or io.stdout):write("written: ", path, "\n") end

local function write(given, path, text)
  local file, problem = io.open(path, "w")
  if not file then usage.fail("plan: expected a file that can be written, got %s", problem) end
  file:write(text)
  file:close()
  say(given, path)
end

local own = lists.set(lists.map(flags, function(flag) return flag.name end))

local function request_of(given)
  local options = {}
  for name, value in pairs(given) do
    if not own[name] then
      if type(value) == "table" and #value == 1 then value = value[1] end
      options[name] = value
    end
  end
  for _, name in ipairs { "gpu", "gpus", "nodes", "node_link", "link_gb_per_s", "link_latency_us", "node_link_gb_per_s",
    "node_link_latency_us", "nics", "slow_ranks", "slow_by", "jitter", "mtbf_h", "save_every", "save_s",
    "write_s", "restart_s", "memory_gb", "global_batch", "examples", "tokens", "steps", "wall_time_h", "price_per_gpu_hour", "private",
    "keep" } do
    options[name] = given[name]
  end
  if given.no_search then options.search = false end
  -- An option with several values is one to try.
  for _, name in ipairs(lists.keys(options)) do
    local value = options[name]
    if type(value) == "table" then
      options.try = options.try or {}
      options.try[name], options[name] = value, nil
    end
  end
  return options
end

--- An empty Lua table is an object; these are lists.
local function with_lists(text)
  for _, name in ipairs { "plans", "too_large", "front", "as_fast" } do text = text:gsub(('("%s": ?){}'):format(name), "%1[]") end
  return text
end

local function json_of(plan)
  return with_lists(native.records.to_json { modelled = true, machine = { name = plan.machine.name, device = plan.machine.device,
    source = plan.machine.source, measured = plan.machine.measured }, assumptions = plan.assumptions, ranks = plan.ranks,
    memory_bytes = plan.memory_bytes, tried = plan.tried, too_slow = plan.too_slow, plans = plan.plans,
    too_large = plan.too_large, front = plan.front })
end

local function run(given)
  if type(given.simulate) == "number" and given.simulate < 1 then
    usage.fail("plan: option 'simulate': expected 1 step or more, got %d", given.simulate)
  end
  if given.calibrate then
    local profile, file = usage.attempt("plan: ", "plan: ", machines.calibrate, given.device,
      given.calibrate ~= true and given.calibrate or nil, given.gpus)
    local said = ("%s%s: calibrated%s\n"):format(profile.device, given.gpus and (" with %d ranks"):format(given.gpus) or "",
      file ~= "" and ", kept in " .. file or "; there is no place to keep it")
    local stream = given.json and io.stderr or io.stdout
    stream:write(said)
    if not given.model then return 0 end
  end
  local plan = usage.attempt("ms%.plan: ", "plan: ", require("moonshard.plan").plan, request_of(given))
  if given.json then
    io.write(json_of(plan))
  else
    print(tostring(plan))
    if given.explain and (plan.plans[1] or plan.too_large[1]) then print("\n" .. plan:explain()) end
  end
  if #plan.plans == 0 then
    local asked = lists.select({ "script", "sweep", "trace", "simulate" }, function(name) return given[name] ~= nil end)
    if #asked > 0 then io.stderr:write(("moonshard: plan: nothing fits, so that nothing was written for --%s\n"):format(
      table.concat(asked, ", --"))) end
    return 3
  end
  if given.script then write(given, given.script, plan:script()) end
  if given.sweep then write(given, given.sweep, plan:sweep_script()) end
  if given.trace then
    plan:trace(given.trace)
    say(given, given.trace)
  end
  if given.simulate then
    say(given, plan:simulate({ steps = given.simulate ~= true and given.simulate or nil, out = given.out }).path)
  end
  return plan.too_slow and 3 or 0
end

return {
  usage = "--model NAME --gpu h200 --gpus 8 [--nodes N] --global-batch B [--mode ENGINE | --private] [options]",
  about = "Predicts memory and time of training on a cluster, and finds the fastest configurations that fit. Nothing is run.\n"
    .. "All options of moonshard profile may be given: what is given stays, what is not is searched. Several values are tried.",
  flags = lists.extend(lists.merged(flags), arguments.option_flags(package.loaded["moonshard"].options())),
  notes = "docs/plan.md explains the figures, docs/plan_accuracy.md how far measured ones were from them.",
  run = run,
}
