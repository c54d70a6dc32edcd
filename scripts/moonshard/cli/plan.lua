--- moonshard plan: what training will need on a cluster, before anything runs.
local arguments = require "moonshard.arguments"
local lists = require "moonshard.lists"
local machines = require "moonshard.plan_machines"
local native = require "moonshard.native"
local plan_options = require "moonshard.plan_options"
local report = require "moonshard.plan_report"
local usage = require "moonshard.usage"

--- The plan's own options as flags: their help names what counts where none is given.
local function flag_of(option)
  local usual = option.usual or option.default
  return { name = option.name, kind = option.type == "integer" and "int" or option.type,
    doc = option.doc .. (usual and (" (%s)"):format(usual) or "") }
end
local plan_flags = lists.map(lists.select(plan_options.own, function(option) return not option.lua_only end), flag_of)

local flags = lists.extend(lists.merged(plan_flags), {
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
})

-- Beside JSON on standard output nothing else is printed there.
local function say(given, path) (given.json and io.stderr or io.stdout):write("written: ", path, "\n") end

local function write(given, path, text)
  local file, problem = io.open(path, "w")
  if not file then usage.fail("plan: expected a file that can be written, got %s", problem) end
  file:write(text)
  file:close()
  say(given, path)
end

local of_command = lists.set(lists.column(flags, "name"))
local of_plan = lists.set(lists.column(plan_flags, "name"))

local function request_of(given)
  local options = {}
  for name, value in pairs(given) do
    if of_plan[name] or not of_command[name] then
      if type(value) == "table" and #value == 1 then value = value[1] end
      options[name] = value
    end
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
    memory_bytes = plan.memory_bytes, tried = plan.tried, fits = plan.fits, refused = plan.refused, too_slow = plan.too_slow,
    plans = plan.plans, too_large = plan.too_large, front = plan.front })
end

local function run(given)
  if type(given.simulate) == "number" and given.simulate < 1 then
    usage.fail("plan: option 'simulate': expected 1 step or more, got %d", given.simulate)
  end
  if given.device and not given.calibrate then
    usage.fail "plan: option 'device': expected --calibrate beside it, got none; --gpu names the device of a plan"
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
    local row = given.explain and (plan.plans[1] or plan.too_large[1])
    if row then print("\n" .. report.explanation(plan, row)) end
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
