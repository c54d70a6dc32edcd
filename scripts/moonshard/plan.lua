--- ms.plan: what training will need on a cluster, before anything runs, and which configuration is the fastest that fits.
local asked = require "moonshard.plan_options"
local blame = require "moonshard.sweep.blame"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local machines = require "moonshard.plan_machines"
local native = require "moonshard.native"
local points_of = require "moonshard.sweep.points"
local report = require "moonshard.plan_report"
local usage = require "moonshard.usage"

local Plan = { __tostring = report.table_of }
Plan.__index = Plan
local M = { class = Plan }

--- Calls it; errors name the user's line and function.
local function attempt(where, run, ...)
  local ok, result = pcall(run, ...)
  if ok then return result end
  local text = usage.plain(result):gsub("^plan%.%w+: ", ""):gsub("^plan: ", where .. ": "):gsub("^experiment: ", where .. ": ")
  blame("%s", text)
end

--- One seed is one history of stragglers and failures.
local function seed_of(shared) return math.max(0, shared.seed or 0) end

--- As plan/unit_program.cpp takes them: between so many ranks of one machine, unless a link is named.
local function links_are_measured(machine, own, shared)
  local of_ranks = lists.select(machine.collectives or {}, function(rate) return rate.ranks == (own.gpus or 1) end)
  return #of_ranks > 0 and (own.nodes or 1) == 1
    and not (shared.link or own.link_gb_per_s or own.link_latency_us)
end

--- What a rank may use. Ranks of one CPU share its memory, and an experiment on one may have a limit.
local function memory_of(machine, own, shared)
  local bytes = (own.memory_gb or machine.memory_gb / (machine.kind == "cpu" and own.gpus or 1)) * 1e9
  local limit = shared.memory_limit_mb or 0
  if limit > 0 and machine.kind ~= "cpu" then
    blame("ms.plan: option 'memory_limit_mb': expected the plan of a CPU, whose memory it limits, got one of a GPU (memory_gb)")
  end
  return limit > 0 and math.min(bytes, limit * 2 ^ 20) or bytes
end

--- Ranks of one CPU talk through its memory: nobody knows how fast before it is measured.
local function cluster_of(own, shared)
  local machine = machines.find(own.gpu, 4, own.gpus)
  local shares = machine.kind == "cpu" and own.gpus or 1
  for _, name in ipairs { "host_memory_gb", "host_gb_per_s" } do
    if own[name] and machine.kind == "cpu" then
      blame("ms.plan: option '%s': expected the plan of a GPU, whose offload is on its host, got one of a CPU", name)
    end
  end
  local link = shared.link or (shares > 1 and not links_are_measured(machine, own, shared) and "ethernet10" or nil)
  return { machine = machine.file, gpus = own.gpus or 1, nodes = own.nodes or 1, link = link, node_link = own.node_link,
    link_gb_per_s = own.link_gb_per_s, link_latency_us = own.link_latency_us, node_link_gb_per_s = own.node_link_gb_per_s,
    node_link_latency_us = own.node_link_latency_us, nics = own.nics, slow_ranks = own.slow_ranks,
    slow_by = own.slow_by or own.slow_ranks and asked.default "slow_by" or nil,
    jitter = own.jitter, seed = seed_of(shared),
    host_bytes = own.host_memory_gb and own.host_memory_gb * 1e9, host_gb_per_s = own.host_gb_per_s,
    memory_bytes = memory_of(machine, own, shared) }, machine
end

--- Noise and epsilon of a schedule; rows of one batch share it, and finding the noise takes seconds.
local function budget_of(plan, schedule)
  local key = ("%.17g %d"):format(schedule.q, schedule.steps)
  plan.budgets = plan.budgets or {}
  if not plan.budgets[key] then
    local shared, privacy = plan.shared, package.loaded["moonshard"].privacy
    schedule = lists.merged(schedule, { method = shared.accountant or points_of.defaults().accountant }) -- the one that the training asks
    if (shared.target_epsilon or 0) > 0 then
      local found = privacy.calibrate(lists.merged(schedule, { target_epsilon = shared.target_epsilon }))
      plan.budgets[key] = { sigma = found.sigma, epsilon = found.epsilon }
    else
      local sigma = shared.noise_multiplier or 1
      plan.budgets[key] = { sigma = sigma, epsilon = privacy.epsilon(lists.merged(schedule, { sigma = sigma })).epsilon }
    end
  end
  return plan.budgets[key]
end

--- Seconds that training stands still for a save: a rank's state is copied to host memory, a thread writes it.
local function save_seconds(plan, row)
  return plan.request.save_s or (row.fixed_bytes + row.host_bytes) / (plan.machine.to_host_gb_per_s * 1e9)
end

local default_restart_s, default_write_s = asked.default "restart_s", asked.default "write_s"

--- Failures and restarts of a run (runtime/plan/goodput.h).
local function failures_of(plan, row, run)
  local own = plan.request
  return native.plan.goodput { step_s = row.step_ms / 1e3, steps = run.steps, ranks = run.ranks, mtbf_s = own.mtbf_h * 3600,
    save_s = save_seconds(plan, row), write_s = own.write_s or default_write_s,
    restart_s = own.restart_s or default_restart_s, save_every = own.save_every or 0,
    seed = seed_of(plan.shared) }
end

--- What the whole run takes: steps, hours, price and epsilon, as far as the options say.
local function run_of(plan, row)
  local own, shared = plan.request, plan.shared
  local ranks = (own.gpus or 1) * (own.nodes or 1)
  local batch = row.options.batch_size * row.options.grad_accum * ranks
  local run = { batch = batch, ranks = ranks }
  local epochs = (shared.epochs or 0) > 0 and shared.epochs or nil
  local steps = own.steps or ((shared.budget_steps or 0) > 0 and shared.budget_steps or nil)
  if steps then
    run.steps = steps
  elseif own.tokens then
    run.steps = math.ceil(own.tokens / (batch * row.tokens_per_sample))
  elseif own.examples and epochs then
    run.steps = math.ceil(own.examples * epochs / batch)
  end
  if run.steps then
    run.hours = run.steps * row.step_ms / 3.6e6
    if own.mtbf_h then
      run.failures = failures_of(plan, row, run)
      run.goodput_percent, run.training_hours, run.hours = run.failures.goodput_percent, run.hours, run.failures.wall_s / 3600
    end
    run.gpu_hours = run.hours * ranks
    run.price = own.price_per_gpu_hour and run.gpu_hours * own.price_per_gpu_hour
    run.in_time = not own.wall_time_h or run.hours <= own.wall_time_h
  end
  run.no_epsilon = row.options.mode ~= "none" and asked.no_epsilon(shared) or nil
  if row.options.mode ~= "none" and own.examples and run.steps and not run.no_epsilon then
    if batch > own.examples then
      blame("ms.plan: option 'examples': expected at least the %d samples of a step, got %d", batch, own.examples)
    end
    -- Steps that are done again have noise of their own, and those that were lost stay charged (docs/checkpoints.md).
    local lost = run.failures and math.ceil(run.failures.lost_steps) or 0
    local schedule = { q = batch / own.examples, steps = run.steps + lost, delta = shared.delta or 1e-5 }
    local budget = budget_of(plan, schedule)
    run.noise_multiplier, run.epsilon = budget.sigma, budget.epsilon
    run.q, run.delta = schedule.q, schedule.delta
  end
  return run
end

--- Adaptive clipping's noisy count leaves too little of such noise for gradients: the training ends in its first step. Nil where it starts.
local function refused_noise(shared, row)
  if shared.clipping ~= "adaptive" or not row or row.options.mode == "none" then return end
  local sigma = row.run.noise_multiplier or shared.noise_multiplier or points_of.defaults().noise_multiplier
  local of_count = (shared.quantile_noise or 0) > 0 and shared.quantile_noise or row.run.batch / 20
  if sigma < 2 * of_count then return end
  return ("privacy: this training will be refused: adaptive clipping expects noise_multiplier below 2 x quantile_noise = %g, got %g; raise "
    .. "quantile_noise or the batch"):format(2 * of_count, sigma)
end

--- The assumptions that no measurement of this machine stands behind.
local function assumptions_of(machine, ranks, own, shared, row)
  local list = { ("times: %s, %s"):format(machine.device, machine.source) }
  local is_given = own.link_gb_per_s or own.link_latency_us or own.node_link_gb_per_s or own.node_link_latency_us
  local but = is_given and ", but for the bandwidths and latencies that were given" or ""
  if ranks > 1 and links_are_measured(machine, own, shared) then
    list[#list + 1] = ("links: collectives of %d ranks as they were measured on this machine"):format(ranks)
  elseif ranks > 1 and machine.kind == "cpu" and not shared.link then
    list[#list + 1] = ("links: as over 10 Gbit Ethernet; moonshard plan --calibrate --gpus %d measures them%s"):format(own.gpus or 1, but)
  elseif ranks > 1 then
    local inside = own.nodes ~= ranks and (shared.link or machine.link or "nvlink") or ""
    local between = (own.nodes or 1) > 1 and (own.nodes ~= ranks and ", between nodes " or "") .. (own.node_link or "infiniband") or ""
    list[#list + 1] = ("links: published rates, not measured here (%s%s)%s"):format(inside, between, but)
  end
  if machine.kind == "cpu" and (own.gpus or 1) > 1 and not links_are_measured(machine, own, shared) then
    local text = "times: as if each of the %d ranks had a CPU like this for itself; --calibrate --gpus %d measures them at once"
    list[#list + 1] = text:format(own.gpus, own.gpus)
  elseif row and row.options.cpu_offload and (own.gpus or 1) > 1 then
    local measured = machine.host_update_gb_per_s
    if not own.host_gb_per_s then
      list[#list + 1] = ("offload: as if each of a node's %d GPUs had a host for itself, whose update is as fast as the measured one's "
        .. "(%g GB/s); host_gb_per_s is what they share"):format(own.gpus, measured)
    elseif own.host_gb_per_s >= own.gpus * measured then
      list[#list + 1] = ("offload: each GPU's update is as fast as on the measured host (%g GB/s), and no faster on one with more")
        :format(measured)
    end
  end
  if asked.has_data(shared) and (shared.target_epsilon or 0) > 0 and not own.examples then
    list[#list + 1] = "privacy: give 'examples', how many samples the data has, for steps, hours and epsilon"
  elseif own.examples and row and row.run and not row.run.steps then
    list[#list + 1] = "run: give 'epochs', 'steps' or 'tokens' beside 'examples' for its hours" ..
      (row.options.mode ~= "none" and " and its epsilon" or "")
  end
  list[#list + 1] = refused_noise(shared, row)
  local delta = shared.delta or 1e-5
  if row and row.run and row.run.epsilon and delta > 1 / own.examples then
    list[#list + 1] = ("privacy: delta %g is above 1 / examples = %g, which an epsilon says little about"):format(delta, 1 / own.examples)
  end
  if own.slow_ranks or own.jitter then
    list[#list + 1] = ("ranks: %d simulated one by one; configurations were compared as if they were alike"):format(ranks)
  elseif ranks > 1 then
    list[#list + 1] = ("ranks: alike, one is simulated for all %d"):format(ranks)
  end
  if own.mtbf_h then
    local text = "failures: every %g h of a rank, restarts of %g s%s; saves stop the training for %s, and are written in %g s%s"
    list[#list + 1] = text:format(own.mtbf_h, own.restart_s or default_restart_s, own.restart_s and "" or " (assumed)",
      own.save_s and ("%g s"):format(own.save_s) or "the copy of a rank's state to its host", own.write_s or default_write_s,
      own.write_s and "" or " (assumed)")
    if not (own.steps or own.tokens or own.examples) then
      list[#list + 1] = "failures: give steps, tokens, or examples and epochs for their effect on a run"
    end
  end
  if machine.measured and not (row and row.likely.step_ms) then
    local text = "ranges: none; no measured step of such a %s was compared with its prediction"
    list[#list + 1] = text:format(ranks > 1 and "cluster" or "device")
  end
  if not machine.measured then list[#list + 1] = "the machine's rates are from data sheets: times may be off by a third" end
  return list
end

local function axes_of(try)
  local axes = {}
  for name, values in pairs(try or {}) do
    if type(values) ~= "table" or #values == 0 then
      blame("ms.plan: option 'try': expected lists of values, got %s for '%s'", tostring(values), name)
    end
    axes[#axes + 1] = { name = name, values = values }
  end
  table.sort(axes, function(a, b) return a.name < b.name end)
  return axes
end

local function search(plan)
  local own, shared = plan.request, plan.shared
  if own.search == false and own.global_batch and not shared.batch_size then
    shared.batch_size = own.global_batch / (plan.ranks * (shared.grad_accum or 1))
    if shared.batch_size ~= math.floor(shared.batch_size) then
      error(("plan: option 'global_batch': expected a multiple of %d, the ranks times grad_accum, got %d"):format(
        plan.ranks * (shared.grad_accum or 1), own.global_batch), 0)
    end
  end
  local single = native.plan.predict(shared, plan.cluster)
  plan.num_parameters = single.num_parameters
  if own.search == false then
    plan.plans, plan.too_large, plan.front, plan.tried = single.fits and { single } or {}, single.fits and {} or { single }, { single }, 1
    return
  end
  local private = own.private or (shared.target_epsilon or 0) > 0 or (shared.mode ~= nil and shared.mode ~= "none")
  -- Without a batch of all ranks, a micro-batch that was given stays as it is, and one that was not is the preset's in all.
  local is_given = shared.batch_size or (own.try and own.try.batch_size)
  local batch = own.global_batch or (is_given and 0) or single.options.batch_size * (shared.grad_accum or 1) * plan.ranks
  local space = { global_batch = batch, private = private, keep = own.keep or asked.default "keep",
    by_tokens = own.tokens ~= nil, axes = axes_of(own.try) }
  if #space.axes == 0 then space.axes = nil end
  local found = native.plan.search(shared, plan.cluster, space)
  for _, key in ipairs { "plans", "too_large", "front", "tried", "fits", "refused" } do plan[key] = found[key] end
end

--- Plans training on a machine that need not be this one.
-- @tparam table options gpu, gpus, nodes, link, node_link, nics, memory_gb, host_memory_gb, host_gb_per_s; slow_ranks, slow_by, jitter;
-- mtbf_h, save_every, save_s, write_s, restart_s; global_batch, examples, tokens, steps, wall_time_h, price_per_gpu_hour; search, try,
-- keep; and experiment options
-- @treturn Plan plans (fastest first), too_large, front, best, machine, assumptions; print it
-- @usage print(ms.plan { model = "llama3.1-8b", mode = "auto", gpu = "h200", gpus = 8, global_batch = 256, seq_length = 2048 })
function M.plan(options)
  local shared, own = asked.checked(options)
  local cluster, machine = cluster_of(own, shared)
  local plan = setmetatable({ request = own, shared = shared, cluster = cluster, machine = machine,
    ranks = (own.gpus or 1) * (own.nodes or 1) }, Plan)
  plan.memory_bytes = cluster.memory_bytes
  attempt("ms.plan", search, plan)
  plan.best = plan.plans[1]
  for _, row in ipairs(plan.plans) do row.run = attempt("ms.plan", run_of, plan, row) end
  plan.assumptions = assumptions_of(machine, plan.ranks, own, shared, plan.best or plan.too_large[1])
  if plan.best and plan.best.run.in_time == false then
    plan.too_slow = ("the fastest plan takes %.1f h, more than the %.1f h that were given"):format(plan.best.run.hours, own.wall_time_h)
  end
  return plan
end

--- Every term of a plan: memory by owner, time by phase, and what it assumes.
function Plan:explain(place)
  local row = self.plans[place or 1] or (place == nil and self.too_large[1])
  return table.concat(lists.extend({ report.explanation(self, row or self:row(place)) }, self.assumptions), "\n")
end

--- The Lua script that runs a plan.
function Plan:script(place) return report.script(self, self:row(place)) end

--- A sweep around a plan: its neighbours in batch, checkpointing and engine.
function Plan:sweep_script(place) return report.sweep_script(self, self:row(place)) end

--- Writes the simulated step of a plan as a Chrome trace, marked as modelled.
function Plan:trace(file, place)
  if type(file) ~= "string" then blame("Plan:trace: expected the name of a file, got %s", tostring(file)) end
  attempt("Plan:trace", native.plan.trace, lists.merged(self.shared, self:row(place).options), self.cluster, file)
end

--- Simulates steps of a plan, and writes them as a run folder like that of a real run, all of it marked as modelled.
-- @tparam[opt] table options steps (5), out ("results"), name ("modelled"), place (1)
-- @treturn Runs the folder
function Plan:simulate(options)
  options = guard.check("Plan:simulate", options, { "steps", "out", "name", "place" }, 2)
  local steps = options.steps
  if steps ~= nil and not (type(steps) == "number" and steps >= 1 and steps == math.floor(steps)) then
    blame("Plan:simulate: option 'steps': expected a whole number from 1 on, got %s", tostring(steps))
  end
  local row = self:row(options.place)
  local path = require("moonshard.plan_records").write { name = options.name, out = options.out, steps = options.steps,
    entries = { { options = lists.merged(self.shared, row.options), cluster = self.cluster, machine = self.machine } } }
  return require("moonshard.runs").load(path)
end

--- A plan that fits, by its place.
function Plan:row(place)
  local row = self.plans[place or 1]
  if not row then blame("Plan: expected the place of one of %d plans that fit, got %s", #self.plans, tostring(place or 1)) end
  return row
end

return M
