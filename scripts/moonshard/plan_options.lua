--- What ms.plan may be asked: its own options, their limits, and what excludes or needs each other. What is given must count; nothing is
-- dropped without a word.
local blame = require "moonshard.sweep.blame"
local lists = require "moonshard.lists"
local points_of = require "moonshard.sweep.points"

local M = {}

--- Own options: numbers with what they may be at least and at most.
local numbers = { gpus = { 1, 1024, whole = true }, nodes = { 1, 65536, whole = true }, nics = { 1e-3, 1e4 },
  link_gb_per_s = { 1e-6, 1e6 }, link_latency_us = { 1e-6, 1e9 }, node_link_gb_per_s = { 1e-6, 1e6 }, node_link_latency_us = { 1e-6, 1e9 },
  memory_gb = { 1e-3, 1e6 },
  slow_ranks = { 1, 65536, whole = true }, slow_by = { 1e-6, 1000 }, jitter = { 1e-6, 3 }, mtbf_h = { 1e-6, 1e12 },
  save_every = { 1, 1e12, whole = true }, save_s = { 1e-9, 1e7 }, write_s = { 1e-9, 1e7 }, restart_s = { 1e-9, 1e7 },
  global_batch = { 1, 1e9, whole = true }, examples = { 1, 1e15 }, tokens = { 1, 1e18 }, steps = { 1, 1e12, whole = true },
  wall_time_h = { 1e-9, 1e9 }, price_per_gpu_hour = { 1e-9, 1e9 }, keep = { 1, 1000, whole = true } }
local others = { gpu = "string", node_link = "string", search = "boolean", try = "table", private = "boolean" }
local most_ranks, most_uneven_ranks = 2 ^ 20, 16384

--- A plan is one experiment's: of these it takes one value.
local single = { "model", "task", "target_epsilon", "noise_multiplier", "delta", "epochs", "budget_steps", "accountant", "sampler", "seed",
  "data_folder", "data_file" }

local function check_types(options)
  if type(options) ~= "table" then blame("ms.plan: expected a table, got %s", type(options)) end
  points_of.check_keys("ms.plan", options, lists.extend(lists.keys(numbers), lists.keys(others)))
  for key, wanted in pairs(others) do
    if options[key] ~= nil and type(options[key]) ~= wanted then
      blame("ms.plan: option '%s': expected a %s, got %s", key, wanted, tostring(options[key]))
    end
  end
  for key, range in pairs(numbers) do
    local value = options[key]
    if value ~= nil and type(value) ~= "number" then
      blame("ms.plan: option '%s': expected a number, got %s", key, tostring(value))
    elseif value ~= nil and (value <= 0 or value ~= value) then
      blame("ms.plan: option '%s': expected a number above 0, got %s", key, tostring(value))
    elseif value ~= nil and range.whole and value ~= math.floor(value) then
      blame("ms.plan: option '%s': expected a whole number, got %s", key, tostring(value))
    elseif value ~= nil and not (value >= range[1] and value <= range[2]) then
      blame("ms.plan: option '%s': expected a number from %g to %g, got %g", key, range[1], range[2], value)
    end
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
  if options.private and options.mode == "none" and not tried then
    blame "ms.plan: expected a private engine where private = true, got mode = none"
  end
  if (options.target_epsilon or 0) <= 0 then return end
  local function fail(expected, got) blame("ms.plan: option 'target_epsilon': expected %s beside it, got %s", expected, got) end
  if options.mode == "none" and not tried then fail("a private engine", "mode = none") end
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
  for _, name in ipairs(lists.keys(numbers)) do
    if options.try and options.try[name] ~= nil then blame("ms.plan: option '%s': expected one value, got several", name) end
  end
  if options.search == false and options.try and next(options.try) then
    blame("ms.plan: option 'search': expected true where options have several values (%s), got false", tostring(next(options.try)))
  end
end

--- Options that count only beside another one.
local needs = { { "slow_by", "slow_ranks" }, { "save_every", "mtbf_h" }, { "save_s", "mtbf_h" }, { "write_s", "mtbf_h" },
  { "restart_s", "mtbf_h" } }

local function check_needs(options)
  for _, pair in ipairs(needs) do
    if options[pair[1]] ~= nil and options[pair[2]] == nil then
      blame("ms.plan: option '%s': expected '%s' beside it, without which it means nothing, got none", pair[1], pair[2])
    end
  end
  for _, name in ipairs { "nics", "node_link", "node_link_gb_per_s", "node_link_latency_us" } do
    if options[name] ~= nil and (options.nodes or 1) == 1 then
      blame("ms.plan: option '%s': expected several nodes, which it is between, got one", name)
    end
  end
  if options.try and options.try.link ~= nil then
    blame "ms.plan: option 'link': expected one value, got several; a plan is for one cluster"
  end
end

--- Fails with what is wrong.
function M.check(options)
  check_types(options)
  check_needs(options)
  check_ranks(options)
  check_axes(options)
  check_privacy(options, check_length(options))
  check_batch(options)
end

--- The options of the experiment, and those of the plan.
function M.divided(options)
  local shared, own = {}, {}
  for key, value in pairs(options) do
    if numbers[key] or others[key] then own[key] = value else shared[key] = value end
  end
  if own.try then own.try = points_of.with_own_names(own.try) end
  return points_of.with_own_names(shared), own
end

return M
