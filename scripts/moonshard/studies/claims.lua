--- Claims of the documents as checks: functions of results that say whether a claim holds, with figures.
-- A check returns true (confirmed), false (refuted), "undecided" (the interval of a time contains the bound) or nil (not
-- measured), and a text; of a refuted claim the text says why, and when it would hold (moonshard.studies.reasons). Verdicts on
-- figures without noise are those of runtime/analysis/claims.h.
local lazy_points = require "moonshard.lazy_points"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local reasons = require "moonshard.studies.reasons"
local scaling = require "moonshard.analyze.scaling"
local statistics = require "moonshard.analyze.statistics"

local M = {}

local function answer(claim) return claim.holds, claim.figures end

--- Ratios this near to 1 are no difference: kNoticeable of runtime/analysis/claims.h.
M.noticeable = 0.005

--- Pairs of good points that differ in one axis only: value `of` against value `to`.
-- @tparam string axis e.g. "mode"
-- @param of value of the first point of a pair
-- @param to value of the second
-- @treturn {table,...} each { of = point, to = point, at = "seq_length 64" }
function M.pairs_of(runs, axis, of, to)
  local list = native.analysis.pairs(lazy_points.plain(runs), axis, of, to)
  for _, pair in ipairs(list) do pair.of, pair.to = runs.points[pair.of], runs.points[pair.to] end
  return list
end

local function metric_of(point, metric)
  if type(metric) == "function" then return metric(point) end
  return point.metrics[metric]
end

--- The bound that an interval contains; nil where all of it is on one side.
local function bound_inside(interval, least, most)
  for _, bound in ipairs { least or false, most or false } do
    if bound and statistics.contains(interval, bound) then return bound end
  end
end

--- A claim in the light of noise. Each item is one figure that must lie within the bounds, with its interval where it has one.
-- One figure that is surely outside refutes the claim; else one whose interval contains a bound leaves it undecided.
-- @tparam table claim holds and figures, without noise
-- @tparam {table,...} items value, interval, reason (why it has none), at
-- @tparam[opt] function shown text of a figure
local function weigh(claim, items, least, most, shown)
  local function said(item, form, bound)
    return ("%d %% interval %s%s " .. form):format(statistics.level, statistics.text(item.interval, shown),
      item.at and item.at ~= "" and " at " .. item.at or "", bound)
  end
  local doubt, refutation, judged, missing, is_refuted
  for _, item in ipairs(items) do
    local bound = item.interval and bound_inside(item.interval, least, most)
    local passed = least and item.value < least and least or most and item.value > most and most
    if bound then
      doubt = doubt or said(item, "contains the bound %.4g", bound)
    elseif passed then
      is_refuted = true
      refutation = refutation or item.interval and said(item, "is beyond the bound %.4g", passed)
    end
    judged, missing = judged or item.interval ~= nil, missing or item.reason
  end
  if doubt and not is_refuted then return "undecided", ("%s; %s"):format(claim.figures, doubt) end
  local note = missing and missing .. ", so noise is not in the verdict" or refutation
    or judged and not is_refuted and ("%d %% intervals exclude the bound"):format(statistics.level)
  return claim.holds, note and ("%s; %s"):format(claim.figures, note) or claim.figures
end

--- The first figure that is surely outside of the bounds, and the bound it passes.
local function refuting(items, least, most)
  for _, item in ipairs(items) do
    local passed = least and item.value < least and least or most and item.value > most and most
    if passed and not (item.interval and bound_inside(item.interval, least, most)) then return item, passed end
  end
end

--- A verdict with the reason for a refutation, from the records of the pair that refutes it most clearly.
local function with_reason(rule, items, least, most, holds, text)
  if holds ~= false then return holds, text end
  local item, passed = refuting(items, least, most)
  local pair = item and item.pair
  local wants_more = item and least ~= nil and passed == least
  local reason = pair and reasons.of_ratio(pair.of, pair.to, rule.metric, wants_more, passed)
  local own = type(rule.would_hold) == "function" and rule.would_hold(pair and pair.of, pair and pair.to) or rule.would_hold
  for _, each in ipairs { reason or false, own or false } do
    if each then text = ("%s; %s"):format(text, each) end
  end
  return holds, text
end

--- A check on the ratio of a figure between two values of an axis, at every point that has both.
-- @tparam table rule axis, of, to, metric (a name, or a function of a point), least, most (bounds of the ratio; either may
-- be absent; a bound of 1 means noticeably above or below it),
-- when ("all", the default, or "largest": only the last measured pair counts, as for claims about long sequences),
-- would_hold (more on when a refuted claim would hold: a text, or a function of both points)
-- @treturn function a check
function M.ratio(rule)
  return function(runs)
    local figures, items = {}, {}
    for i, pair in ipairs(M.pairs_of(runs, rule.axis or "mode", rule.of, rule.to)) do
      local of, to = metric_of(pair.of, rule.metric), metric_of(pair.to, rule.metric)
      figures[i] = { of = of, to = to, at = pair.at }
      if type(of) == "number" and type(to) == "number" and to > 0 then
        local interval, reason = statistics.of_ratio(pair.of, pair.to, rule.metric)
        items[#items + 1] = { value = of / to, interval = interval, reason = reason, at = pair.at, pair = pair }
      end
    end
    local claim = native.analysis.ratio_claim(rule, figures)
    if claim.holds == nil then return answer(claim) end
    if rule.when == "largest" then items = { items[#items] } end
    local least, most = rule.least, rule.most
    if least == 1 then least = 1 + M.noticeable end
    if most == 1 then most = 1 - M.noticeable end
    return with_reason(rule, items, least, most, weigh(claim, items, least, most, statistics.ratio_digits))
  end
end

--- The same for step time and for peak memory of two engines.
function M.time(of, to, least, most, would_hold)
  return M.ratio { of = of, to = to, metric = "median_time_ms", least = least, most = most, would_hold = would_hold }
end
function M.memory(of, to, least, most, would_hold)
  return M.ratio { of = of, to = to, metric = "peak_memory_bytes", least = least, most = most, would_hold = would_hold }
end

--- When flash norms cost less work than ghost norms, T^2 (d_in + d_out) against 2 T d_in d_out: of the model's square layers.
function M.flash_is_cheaper(point)
  local width = point and plot_points.number(point.options.hidden_dim)
  if not width or width == 0 then return nil end
  return ("by work, flash norms of a %d x %d layer are cheaper from %d positions on, ghost norms below"):format(width, width, width)
end

--- A check that a figure of every good point lies within bounds.
-- @tparam table rule metric, least, most, unit, keep (function of a point)
function M.bound(rule)
  return function(runs)
    local figures, items = {}, {}
    for _, point in ipairs(runs:select("ok")) do
      local figure = (not rule.keep or rule.keep(point)) and metric_of(point, rule.metric)
      if type(figure) == "number" then
        local interval, reason = statistics.of_metric(point, rule.metric)
        figures[#figures + 1] = figure
        items[#items + 1] = { value = figure, interval = interval, reason = reason,
          at = plot_points.name(point, plot_points.other_axes(runs), true) }
      end
    end
    local claim = native.analysis.bound_claim(rule, figures)
    if claim.holds == nil then return answer(claim) end
    local holds, text = weigh(claim, items, rule.least, rule.most)
    local reason = holds == false and reasons.of_bound(items, rule.least, rule.most)
    return holds, reason and ("%s; %s"):format(text, reason) or text
  end
end

--- The figures of a growth claim without the exponents of two points.
local function without_short_fits(text, families, quantity)
  local is_short = false
  for _, family in ipairs(families) do
    for _, item in ipairs(family.fits) do
      local reason = item.quantity == quantity and scaling.missing_exponent(item.fit.count)
      local from, to = text:find(family.name .. ": T^", 1, true)
      local stop = reason and from and select(2, text:find(", a + b T^2 ", to, true))
      local last = stop and select(2, text:find("^%S+ %%", stop + 1))
      if last then
        text = ("%s%s: %s%s"):format(text:sub(1, from - 1), family.name, reason, text:sub(last + 1))
        is_short = true
      end
    end
  end
  return text, is_short
end

--- A check on how a quantity of analyze.scaling grows.
-- @tparam table rule mode, quantity, verdicts (a list), axis
function M.growth(rule)
  return function(runs)
    local plain = lazy_points.plain(runs)
    local claim = native.analysis.growth_claim(rule, plain)
    local text, is_short = without_short_fits(claim.figures, native.analysis.growth(plain, rule.axis or "seq_length"), rule.quantity)
    local is_hidden = claim.holds == nil and (is_short or text:find(", undecided;", 1, true) ~= nil)
    if is_hidden then return "undecided", text end
    local longest, options = 0, nil
    for _, point in ipairs(runs:select("ok")) do
      local length = plot_points.number(point.options.seq_length) or 0
      if length >= longest then longest, options = length, point.options end
    end
    local reason = claim.holds == false and options and reasons.of_growth(rule.quantity, options, longest)
    return claim.holds, reason and ("%s; %s"):format(text, reason) or text
  end
end

--- Whether noise may hide which engine has the smallest product of time and memory: one sentence, or nil.
local function doubt_of_tradeoff(best, points, holds)
  local own, doubt = points[best], nil
  for _, mode in ipairs(lists.keys(points)) do
    local other = points[mode]
    local interval = mode ~= best and statistics.of_ratio(own, other, "median_time_ms")
    if interval then
      local memory = own.metrics.peak_memory_bytes / other.metrics.peak_memory_bytes
      local product = { low = interval.low * memory, high = interval.high * memory }
      if product.low > 1 then return nil end  -- surely beaten
      if statistics.contains(product, 1) then
        doubt = doubt or ("%d %% interval of %s against %s, %s, contains 1"):format(statistics.level, best, mode,
          statistics.text(product, statistics.ratio_digits))
      end
    elseif mode ~= best and not holds then
      local function product(point) return point.metrics.median_time_ms * point.metrics.peak_memory_bytes end
      if product(own) > product(other) then return nil end
    end
  end
  return doubt
end

--- What an engine lacks to the smallest product of time and memory.
-- @tparam {table,...} costs name, time, memory of every engine
function M.missing_to_best(name, costs)
  local own, best
  for _, cost in ipairs(costs) do
    if not cost.time or not cost.memory then return nil end
    local product = cost.time * cost.memory
    if cost.name == name then own = { product = product, cost = cost } end
    if not best or product < best.product then best = { product = product, cost = cost } end
  end
  if not own or own.product <= best.product then return nil end
  local ahead = own.cost.time > best.cost.time and (own.cost.memory > best.cost.memory and "faster and smaller" or "faster") or "smaller"
  return ("why: %s is %s; it would hold if %s took %.0f %% less time, or as much less memory"):format(best.cost.name, ahead, name,
    100 * (1 - best.product / own.product))
end

--- A check on which engine trades time and memory best: the smallest product of both, as multiples of plain training's.
-- @tparam table rule best (name of an engine), of (names of all engines that are compared)
function M.tradeoff(rule)
  return function(runs)
    local costs, points = {}, {}
    for i, mode in ipairs(rule.of) do
      local pair = M.pairs_of(runs, "mode", mode, "none")[1]
      local own, plain = pair and pair.of.metrics or {}, pair and pair.to.metrics or {}
      local function times(key) return own[key] and plain[key] and own[key] / plain[key] end
      costs[i] = { name = mode, time = times("median_time_ms"), memory = times("peak_memory_bytes") }
      points[mode] = pair and pair.of
    end
    local claim = native.analysis.tradeoff_claim(rule.best, costs)
    local doubt = claim.holds ~= nil and points[rule.best] and doubt_of_tradeoff(rule.best, points, claim.holds)
    if doubt then return "undecided", ("%s; %s"):format(claim.figures, doubt) end
    local missing = claim.holds == false and M.missing_to_best(rule.best, costs)
    return claim.holds, missing and ("%s; %s"):format(claim.figures, missing) or claim.figures
  end
end

return M
