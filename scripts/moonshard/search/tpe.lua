--- Tree-structured Parzen estimator (Bergstra, Bardenet, Bengio and Kegl, 2011), each dimension by itself: of the points so far the best
-- are one density, the others another; of candidates that the first gives the one is taken that is most likely there against the other.
-- Bandwidths and shares are those of Optuna's and hyperopt's samplers.
local lists = require "moonshard.lists"

local M = {}

local prior_weight = 1
local most_good, good_share = 25, 0.1
local least_bandwidths = 100 -- no narrower than the range over this, or over the number of points where that is smaller

--- How many of so many points are the good ones.
function M.num_good(count) return math.min(math.ceil(good_share * count), most_good) end

--- The normal distribution function (Abramowitz and Stegun's rational form of erfc as in Numerical Recipes, 1.2e-7).
function M.normal_cdf(z)
  local x = math.abs(z) / math.sqrt(2)
  local t = 1 / (1 + 0.5 * x)
  local tail = t * math.exp(-x * x - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806
    + t * (0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))))))))
  return z >= 0 and 1 - tail / 2 or tail / 2
end

--- A mixture of normal distributions, cut off at the ends of a dimension: one around each place, as wide as the way to the farther
-- neighbour, and a wide one for what nobody has tried.
local function mixture(dimension, places)
  local low, high = dimension.low, dimension.high
  local range = high - low
  local centers = lists.extend({}, places, { (low + high) / 2 })
  local prior = #centers
  local order = {}
  for i = 1, #centers do order[i] = i end
  table.sort(order, function(a, b) return centers[a] < centers[b] or centers[a] == centers[b] and a < b end)
  local narrowest = range / math.min(least_bandwidths, #centers)
  local parts = {}
  for at, i in ipairs(order) do
    local left = at > 1 and centers[i] - centers[order[at - 1]] or nil
    local right = at < #order and centers[order[at + 1]] - centers[i] or nil
    local width = math.max(left or right or range, right or left or range)
    width = i == prior and range or math.max(narrowest, math.min(range, width))
    local inside = M.normal_cdf((high - centers[i]) / width) - M.normal_cdf((low - centers[i]) / width)
    local weight = (i == prior and prior_weight or 1) / (#places + prior_weight)
    parts[i] = { center = centers[i], width = width, weight = weight, inside = inside }
  end
  return parts
end

--- Logarithm of a mixture's density at a value; of whole numbers that of their cell's mass.
local function log_density(dimension, parts, value)
  local sum = 0
  if dimension.is_int then
    local from, to = dimension.cell(value)
    for _, part in ipairs(parts) do
      local mass = M.normal_cdf((to - part.center) / part.width) - M.normal_cdf((from - part.center) / part.width)
      sum = sum + part.weight * mass / part.inside
    end
  else
    local place = dimension.place(value)
    for _, part in ipairs(parts) do
      local z = (place - part.center) / part.width
      sum = sum + part.weight * math.exp(-z * z / 2) / (part.width * part.inside)
    end
  end
  return math.log(math.max(sum, 1e-300))
end

--- An item of parts by their weights.
local function pick(parts, generator)
  local left = generator:uniform()
  for i, part in ipairs(parts) do
    left = left - part.weight
    if left < 0 or i == #parts then return part, i end
  end
end

local function draw_number(dimension, parts, generator)
  local part = pick(parts, generator)
  -- The center lies inside and the width is at most the range: a third of the tries succeeds.
  for _ = 1, 1000 do
    local place = part.center + part.width * generator:normal()
    if place >= dimension.low and place <= dimension.high then return dimension.value(place) end
  end
  return dimension.value(part.center)
end

--- Shares of choices: how often each came, and one point for all that came never.
local function shares(dimension, values)
  local parts = lists.map(dimension.choices, function() return { weight = prior_weight / #dimension.choices } end)
  for _, value in ipairs(values) do
    local part = parts[dimension.index[value]]
    part.weight = part.weight + 1
  end
  for _, part in ipairs(parts) do part.weight = part.weight / (#values + prior_weight) end
  return parts
end

--- The most promising of some candidates of one dimension.
-- @tparam {any,...} good values of this dimension in the good points
-- @tparam {any,...} bad and in the others
function M.suggest(dimension, good, bad, generator, num_candidates)
  local near, far, best, best_gain
  if dimension.choices then
    near, far = shares(dimension, good), shares(dimension, bad)
  else
    near, far = mixture(dimension, lists.map(good, dimension.place)), mixture(dimension, lists.map(bad, dimension.place))
  end
  for _ = 1, num_candidates do
    local value, gain
    if dimension.choices then
      local part, i = pick(near, generator)
      value, gain = dimension.choices[i], math.log(part.weight) - math.log(far[i].weight)
    else
      value = draw_number(dimension, near, generator)
      gain = log_density(dimension, near, value) - log_density(dimension, far, value)
    end
    if not best_gain or gain > best_gain then best, best_gain = value, gain end
  end
  return best
end

return M
