--- What ms.plan may be asked: its own options, their limits, and what excludes or needs each other. What is given must count; nothing is
-- dropped without a word.
local blame = require "moonshard.sweep.blame"
local lists = require "moonshard.lists"
local points_of = require "moonshard.sweep.points"

local M = {}

--- The plan's own options; those of an experiment stand beside them. `default`, or `usual` in words: what counts where none is given;
-- `from` and `to`: what numbers may be; `needs`: the option without which it means nothing; `lua_only`: not a flag of the command line.
M.own = {
  { name = "gpu", type = "text", usual = "this machine's, else cpu",
    doc = "h200, h100, a100, cpu, this (calibrated), or the file of a profile" },
  { name = "gpus", type = "integer", default = 1, from = 1, to = 1024, doc = "GPUs of a node" },
  { name = "nodes", type = "integer", default = 1, from = 1, to = 65536, doc = "machines" },
  { name = "node_link", type = "text", default = "infiniband", doc = "link between nodes; link is that inside of one" },
  { name = "link_gb_per_s", type = "number", usual = "what link stands for", from = 1e-6, to = 1e6,
    doc = "bandwidth of a GPU's link in its node and direction" },
  { name = "link_latency_us", type = "number", usual = "what link stands for", from = 1e-6, to = 1e9,
    doc = "least time of a collective over it" },
  { name = "node_link_gb_per_s", type = "number", usual = "what node_link stands for", from = 1e-6, to = 1e6,
    doc = "bandwidth of a network adapter" },
  { name = "node_link_latency_us", type = "number", usual = "what node_link stands for", from = 1e-6, to = 1e9,
    doc = "least time of a collective between nodes" },
  { name = "nics", type = "number", usual = "one per GPU", from = 1e-3, to = 1e4, doc = "network adapters of a node, that its GPUs share" },
  { name = "memory_gb", type = "number", usual = "the device's", from = 1e-3, to = 1e6, doc = "memory that a rank may use" },
  { name = "host_memory_gb", type = "number", usual = "as much as is needed", from = 1e-3, to = 1e9,
    doc = "memory of a node's host, that the offload of its GPUs shares" },
  { name = "host_gb_per_s", type = "number", usual = "the measured host's for every GPU", from = 1e-3, to = 1e9,
    doc = "what a node's host reads and writes, that the updates of offload share" },
  { name = "slow_ranks", type = "integer", from = 1, to = 65536,
    doc = "ranks that compute slower, drawn by seed; all ranks are then simulated" },
  { name = "slow_by", type = "number", default = 0.2, from = 1e-6, to = 1000, needs = "slow_ranks", doc = "how much longer they compute" },
  { name = "jitter", type = "number", from = 1e-6, to = 3,
    doc = "every operation of a rank takes exp(jitter x normal) of its time, by seed" },
  { name = "mtbf_h", type = "number", from = 1e-6, to = 1e12,
    doc = "mean hours between failures of one GPU: wall time, goodput and the best interval of saves" },
  { name = "save_every", type = "integer", usual = "the best", from = 1, to = 1e12, needs = "mtbf_h", doc = "steps between saves" },
  { name = "save_s", type = "number", usual = "the copy of a rank's state to its host", from = 1e-9, to = 1e7, needs = "mtbf_h",
    doc = "seconds that a save stops the training" },
  { name = "write_s", type = "number", default = 60, from = 1e-9, to = 1e7, needs = "mtbf_h",
    doc = "seconds that a save is written beside the training, before it counts and the next may begin" },
  { name = "restart_s", type = "number", default = 300, from = 1e-9, to = 1e7, needs = "mtbf_h",
    doc = "seconds from a failure to the next step" },
  { name = "global_batch", type = "integer", usual = "batch_size times ranks and grad_accum", from = 1, to = 1e9,
    doc = "samples of a step, of all ranks; split into micro-batches" },
  { name = "examples", type = "number", from = 1, to = 1e15, doc = "samples of the data, for epochs and epsilon" },
  { name = "tokens", type = "number", from = 1, to = 1e18, doc = "tokens to train on" },
  { name = "steps", type = "integer", from = 1, to = 1e12, doc = "steps of the run" },
  { name = "wall_time_h", type = "number", from = 1e-9, to = 1e9, doc = "hours that the run may take" },
  { name = "price_per_gpu_hour", type = "number", from = 1e-9, to = 1e9, doc = "price of a GPU hour, in any currency" },
  { name = "private", type = "boolean", default = false, doc = "try the private engines; so does a budget, or a private mode" },
  { name = "keep", type = "integer", default = 10, from = 1, to = 1000, doc = "plans that are kept" },
  { name = "search", type = "boolean", default = true, lua_only = true, doc = "false predicts the configuration as it is given" },
  { name = "try", type = "table", lua_only = true, doc = "option = { values }: tried beside what is searched by itself" },
}
local by_name = {}
for _, option in ipairs(M.own) do by_name[option.name] = option end

--- What an option of the plan's own counts as where it is not given.
function M.default(name) return by_name[name].default end

local type_of_value = { text = "string", boolean = "boolean", table = "table", integer = "number", number = "number" }
local most_ranks, most_uneven_ranks = 2 ^ 20, 16384

--- A plan is one experiment's: of these it takes one value.
local single = { "model", "task", "target_epsilon", "noise_multiplier", "delta", "epochs", "budget_steps", "accountant", "sampler", "seed",
  "data_folder", "data_file" }

local function check_value(option, value)
  local function expected(what) blame("ms.plan: option '%s': expected %s, got %s", option.name, what, tostring(value)) end
  if type(value) ~= type_of_value[option.type] then expected("a " .. type_of_value[option.type]) end
  if not option.from then return end
  if value <= 0 or value ~= value then expected "a number above 0" end
  if option.type == "integer" and value ~= math.floor(value) then expected "a whole number" end
  if not (value >= option.from and value <= option.to) then expected(("a number from %g to %g"):format(option.from, option.to)) end
end

local function check_types(options)
  if type(options) ~= "table" then blame("ms.plan: expected a table, got %s", type(options)) end
  points_of.check_keys("ms.plan", options, lists.keys(by_name))
  for _, option in ipairs(M.own) do
    if options[option.name] ~= nil then check_value(option, options[option.name]) end
  end
end

local function check_ranks(options)
  local ranks = (options.gpus or 1) * (options.nodes or 1)
  if ranks > most_ranks then blame("ms.plan: expected at most %d ranks (gpus x nodes), got %d", most_ranks, ranks) end
  if (options.slow_ranks or options.jitter) and ranks > most_uneven_ranks then
    blame("ms.plan: expected at most %d ranks where they differ (slow_ranks, jitter), as each is simulated, got %d", most_uneven_ranks,
      ranks)
  end
  for _, name in ipairs { "world", "nproc" } do
    if options[name] and options[name] ~= "auto" then
      blame("ms.plan: option '%s': expected gpus and nodes, which say how many ranks a plan has, got %s = %s", name, name,
        tostring(options[name]))
    end
  end
end

--- Whether samples come from files; else from a generator, which has no budget.
function M.has_data(options) return (options.data_folder or "") ~= "" or (options.data_file or "") ~= "" end

--- How long the run is: one of several ways to say it; nil where nobody does.
local function check_length(options)
  local given = lists.select({ "steps", "tokens", "budget_steps", "epochs" }, function(name) return (options[name] or 0) > 0 end)
  if #given > 1 then
    blame("ms.plan: expected one of steps, tokens, budget_steps, or examples and epochs, got %s", table.concat(given, " and "))
  end
  if given[1] == "epochs" and not (options.examples or M.has_data(options)) then
    blame("ms.plan: option 'epochs': expected 'examples' beside it, how many an epoch has, got none")
  end
  local has_length = #given == 1 and (given[1] ~= "epochs" or options.examples ~= nil)
  for _, name in ipairs { "price_per_gpu_hour", "wall_time_h" } do
    if options[name] and not has_length then
      blame("ms.plan: option '%s': expected steps, tokens, budget_steps, or examples and epochs beside it, got none", name)
    end
  end
  return has_length
end

--- Why such a training has no epsilon; nil where it has one. The training itself says the same.
function M.no_epsilon(options)
  if (options.sampler or "poisson") ~= "poisson" then return "sampler = " .. options.sampler .. ", not poisson" end
  if options.secure == false then return "secure = false" end
  if options.norm_reduce == "sum" then return "norm_reduce = sum mixes samples of several ranks" end
  if options.clipping == "adaptive" then return "clipping = adaptive spends on its bound, too, which a plan does not count" end
end

local function check_privacy(options, has_length)
  local tried = options.try and options.try.mode
  -- A search would try private engines; without one the mode has to be one.
  local is_plain = not tried and (options.mode == "none" or options.mode == nil and options.search == false)
  if options.private and is_plain then
    blame("ms.plan: expected a private engine where private = true, got mode = %s", options.mode or "nothing")
  end
  if (options.target_epsilon or 0) <= 0 then return end
  local function fail(expected, got) blame("ms.plan: option 'target_epsilon': expected %s beside it, got %s", expected, got) end
  if is_plain then fail("a private engine", "mode = " .. (options.mode or "nothing")) end
  if options.noise_multiplier then fail("no noise_multiplier, which follows from it,", tostring(options.noise_multiplier)) end
  local reason = M.no_epsilon(options)
  if reason then fail("a training that has an epsilon", reason) end
  if M.has_data(options) then return end
  if not options.examples then fail("'examples', how many the data has,", "none") end
  if not has_length then fail("steps, tokens, budget_steps or epochs", "none") end
end

--- The micro-batch of a rank and its number follow from the batch of all ranks, or must agree with it.
local function check_batch(options)
  local batch, size, count = options.global_batch, options.batch_size, options.grad_accum
  if not (batch and type(size) == "number") then return end
  local ranks = (options.gpus or 1) * (options.nodes or 1)
  local all = size * (count or 1) * ranks
  if (count and all ~= batch) or batch % all ~= 0 then
    blame("ms.plan: option 'global_batch': expected %s%d (batch_size %d%s on %d ranks), got %d", count and "" or "a multiple of ", all,
      size,
      count and (", grad_accum %d"):format(count) or "", ranks, batch)
  end
end

local function check_axes(options)
  for _, name in ipairs(single) do
    if options.try and options.try[name] ~= nil then
      blame("ms.plan: option '%s': expected one value, got several; a plan is for one", name)
    end
  end
  for name in pairs(options.try or {}) do
    if by_name[name] then blame("ms.plan: option '%s': expected one value, got several", name) end
  end
  if options.search == false and options.try and next(options.try) then
    blame("ms.plan: option 'search': expected true where options have several values (%s), got false", tostring(next(options.try)))
  end
end

--- Options of an experiment that count only where another one is not `off`; `searched`: a search tries that one by itself.
local idle = {
  { names = { "checkpoint_every" }, beside = "checkpointing", off = "none", searched = function() return true end },
  { names = { "host_memory_gb", "host_gb_per_s" }, beside = "cpu_offload", off = false, searched = function() return true end },
  { names = { "noise_multiplier", "max_grad_norm", "clipping", "memory_budget_mb" }, beside = "mode", off = "none",
    searched = function(options) return options.private or (options.target_epsilon or 0) > 0 end },
}

local function is_on(options, group)
  if (options.try or {})[group.beside] then return true end
  if options[group.beside] ~= nil then return options[group.beside] ~= group.off end
  return options.search ~= false and group.searched(options)
end

--- A default changes nothing: rows of a plan have theirs.
local function check_idle(options)
  local defaults = points_of.defaults()
  for _, group in ipairs(idle) do
    for _, name in ipairs(is_on(options, group) and {} or group.names) do
      local is_given = options[name] ~= nil and options[name] ~= defaults[name] or (options.try or {})[name] ~= nil
      if is_given then
        blame("ms.plan: option '%s': expected a '%s' beside it, without which it means nothing, got %s", name, group.beside,
          tostring(options[group.beside] or "none"))
      end
    end
  end
end

--- Options that count only beside another one.
local function check_needs(options)
  for _, option in ipairs(M.own) do
    if option.needs and options[option.name] ~= nil and options[option.needs] == nil then
      blame("ms.plan: option '%s': expected '%s' beside it, without which it means nothing, got none", option.name, option.needs)
    end
  end
  for _, name in ipairs { "nics", "node_link", "node_link_gb_per_s", "node_link_latency_us" } do
    if options[name] ~= nil and (options.nodes or 1) == 1 then
      blame("ms.plan: option '%s': expected several nodes, which it is between, got one", name)
    end
  end
  for _, name in ipairs { "link", "link_gb_per_s", "link_latency_us" } do
    if options[name] ~= nil and (options.gpus or 1) == 1 then
      blame("ms.plan: option '%s': expected several gpus of a node, which it is between, got one", name)
    end
  end
  if options.kernels == "reference" or options.try and options.try.kernels ~= nil then
    blame("ms.plan: option 'kernels': expected auto, whose times profiles have, got %s", tostring(options.kernels or "several"))
  end
  if options.try and options.try.link ~= nil then
    blame "ms.plan: option 'link': expected one value, got several; a plan is for one cluster"
  end
end

--- The options of the experiment, under their own names, and those of the plan.
local function divided(options)
  local shared, own = {}, {}
  for key, value in pairs(options) do
    if by_name[key] then own[key] = value else shared[key] = value end
  end
  if own.try then own.try = points_of.with_own_names(own.try, "ms.plan") end
  return points_of.with_own_names(shared, "ms.plan"), own
end

--- The same, or an error that says what is wrong with them.
function M.checked(options)
  check_types(options)
  local shared, own = divided(options)
  local all = lists.merged(shared, own)
  check_needs(all)
  check_idle(all)
  check_ranks(all)
  check_axes(all)
  check_privacy(all, check_length(all))
  check_batch(all)
  return shared, own
end

return M
