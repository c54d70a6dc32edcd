--- moonshard privacy epsilon|calibrate: what a schedule costs, and what a budget allows.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"
local usage = require "moonshard.usage"

local function both(given, a, b)
  if given[a] ~= nil and given[b] ~= nil then
    usage.fail("privacy: expected either --%s or --%s, got both", a:gsub("_", "-"), b:gsub("_", "-"))
  end
end

--- q and steps from batch size, samples and epochs, where those are given.
local function fill_rates(given)
  both(given, "q", "batch_size")
  both(given, "steps", "epochs")
  if (given.batch_size == nil) ~= (given.dataset_size == nil) then
    usage.fail("privacy: expected --batch-size and --dataset-size together, got one of them")
  end
  if given.batch_size then
    if given.batch_size < 1 or given.dataset_size < given.batch_size then
      usage.fail("privacy: expected a batch size from 1 to the dataset size, got %g of %g", given.batch_size, given.dataset_size)
    end
    given.q = given.batch_size / given.dataset_size
  end
  if given.epochs then
    if not given.q then usage.fail("privacy: option '--epochs': expected --q or --batch-size and --dataset-size beside it, got neither") end
    if not (given.epochs > 0 and given.epochs < math.huge) or given.q <= 0 then
      usage.fail("privacy: option '--epochs': expected a number above 0, with q above 0, got %g", given.epochs)
    end
    -- An epoch is as many steps as see every sample once on average; a begun one counts.
    given.steps = math.ceil(given.epochs / given.q - 1e-9)
  end
end

local function required(given, names)
  for _, name in ipairs(names) do
    if given[name] == nil then
      usage.fail("privacy: expected --%s, got nothing; moonshard privacy --help", name:gsub("_", "-"))
    end
  end
end

--- Without noise there is no epsilon, and a table of infinities looks like an answer.
local function refuse_no_noise(given)
  if given.sigma and given.sigma <= 0 then
    usage.fail("privacy: option '--sigma': expected a noise multiplier above 0, got %g; without noise no epsilon holds", given.sigma)
  end
end

--- The library's own message, as the user's mistake.
local function call(f, options)
  local ok, result = pcall(f, options)
  if ok then return result end
  local text = usage.plain(result):gsub("^ms%.privacy%.%w+: ", ""):gsub("^accountant%.?%w*: ", "")
  usage.fail("privacy: %s", (text:gsub("\n.*", "")))
end

local function wanted_methods(given, q)
  if given.method then return { given.method } end
  if given.orders then return { "rdp" } end
  return q == 1 and { "rdp", "prv", "gaussian", "gdp" } or { "rdp", "prv", "gdp" }
end

--- Asks every wanted method, and prints the answers as a table of rows, or as JSON.
local function ask(given, action, own_options, schedule, columns, row_of)
  local methods = wanted_methods(given, given.q)
  local results = lists.map(methods, function(method)
    return call(action, lists.merged(own_options,
      { method = method, q = given.q, sigma = given.sigma, steps = given.steps, delta = given.delta }))
  end)
  if given.json then
    io.write(native.records.to_json { delta = given.delta, target_epsilon = given.target_epsilon, schedule = schedule, results = results })
    return 0
  end
  print(text_table.format(columns, lists.map(methods, function(method, i) return lists.extend({ method }, row_of(results[i])) end)))
  print("Poisson sampling, neighbours differ by one sample added or removed.")
  return 0
end

local function digits(number) return number and ("%.6g"):format(number) or "" end

local function epsilon(given, privacy)
  required(given, { "q", "sigma", "steps", "delta" })
  refuse_no_noise(given)
  local schedule = { q = given.q, sigma = given.sigma, steps = given.steps }
  return ask(given, privacy.epsilon, { orders = given.orders }, schedule, { "method", "epsilon", "" }, function(found)
    local detail = found.best_order and "order " .. digits(found.best_order)
      or found.lower and ("between %s and %s"):format(digits(found.lower), digits(found.upper)) or ""
    if found.note then detail = detail == "" and found.note or detail .. "; " .. found.note end
    return { digits(found.epsilon), detail }
  end)
end

local function calibrate(given, privacy)
  required(given, { "delta", "target_epsilon" })
  refuse_no_noise(given)
  if given.orders then usage.fail("privacy: option '--orders': expected beside epsilon alone, got it beside calibrate") end
  local columns = { "method", "q", "sigma", "steps", "epsilon", "" }
  return ask(given, privacy.calibrate, { target_epsilon = given.target_epsilon }, nil, columns, function(found)
    return { digits(found.q), digits(found.sigma), ("%.0f"):format(found.steps), digits(found.epsilon), found.note or "" }
  end)
end

local actions = { epsilon = epsilon, calibrate = calibrate }

local function answer(given)
  local action = actions[given.action or ""]
  if not action then
    usage.fail("privacy: expected epsilon or calibrate, got %s; moonshard privacy --help",
      given.action and "'" .. given.action .. "'" or "nothing")
  end
  fill_rates(given)
  return action(given, package.loaded["moonshard"].privacy)
end

return {
  usage = "epsilon|calibrate --delta D [--q Q] [--sigma S] [--steps N] [--target-epsilon E] [--method M] [--json]",
  about = "epsilon: what steps with this rate and noise cost. calibrate: whichever of q, sigma and steps is left out, so that the\n"
    .. "budget holds.",
  flags = {
    { name = "method", kind = "text", choices = { "rdp", "prv", "pld", "gdp", "gaussian" },
      doc = "one of them; else rdp, prv and, as an approximation, gdp" },
    { name = "q", kind = "number", value = "Q", doc = "sampling rate: batch size over samples" },
    { name = "sigma", kind = "number", value = "S", aliases = { "noise_multiplier" }, doc = "noise multiplier" },
    { name = "steps", kind = "int", doc = "number of steps" },
    { name = "delta", kind = "number", value = "D", doc = "chance that the promise fails" },
    { name = "target_epsilon", kind = "number", value = "E", doc = "calibrate: the budget" },
    { name = "orders", kind = "number", list = true, value = "A B", doc = "Renyi orders of rdp" },
    { name = "batch_size", kind = "int", value = "B", doc = "with --dataset-size instead of --q: expected size of a batch" },
    { name = "dataset_size", kind = "int", doc = "number of samples" },
    { name = "epochs", kind = "number", value = "E", doc = "instead of --steps" },
    { name = "json", kind = "boolean", doc = "the same as JSON" },
  },
  positional = { name = "action", kind = "text", words = { "epsilon", "calibrate" } },
  notes = "docs/privacy.md says what each method promises.",
  run = answer,
}
