--- Claims of the documents as checks: functions of results that say whether a claim holds, with figures.
-- A check returns true (confirmed), false (refuted) or nil (not measured), and a text. Verdicts are those of
-- runtime/analysis/claims.h.
local native = require "moonshard.native"

local M = {}

local function answer(claim) return claim.holds, claim.figures end

--- Pairs of good points that differ in one axis only: value `of` against value `to`.
-- @tparam string axis e.g. "mode"
-- @param of value of the first point of a pair
-- @param to value of the second
-- @treturn {table,...} each { of = point, to = point, at = "seq_length 64" }
function M.pairs_of(runs, axis, of, to)
  local list = native.analysis.pairs(runs, axis, of, to)
  for _, pair in ipairs(list) do pair.of, pair.to = runs.points[pair.of], runs.points[pair.to] end
  return list
end

local function metric_of(point, metric)
  if type(metric) == "function" then return metric(point) end
  return point.metrics[metric]
end

--- A check on the ratio of a figure between two values of an axis, at every point that has both.
-- @tparam table rule axis, of, to, metric (a name, or a function of a point), least, most (bounds of the ratio; either may
-- be absent; a bound of 1 means noticeably above or below it),
-- when ("all", the default, or "largest": only the last measured pair counts, as for claims about long sequences)
-- @treturn function a check
function M.ratio(rule)
  return function(runs)
    local figures = {}
    for i, pair in ipairs(M.pairs_of(runs, rule.axis or "mode", rule.of, rule.to)) do
      figures[i] = { of = metric_of(pair.of, rule.metric), to = metric_of(pair.to, rule.metric), at = pair.at }
    end
    return answer(native.analysis.ratio_claim(rule, figures))
  end
end

--- The same for step time and for peak memory of two engines.
function M.time(of, to, least, most) return M.ratio { of = of, to = to, metric = "median_time_ms", least = least, most = most } end
function M.memory(of, to, least, most) return M.ratio { of = of, to = to, metric = "peak_memory_bytes", least = least, most = most } end

--- A check that a figure of every good point lies within bounds.
-- @tparam table rule metric, least, most, unit, keep (function of a point)
function M.bound(rule)
  return function(runs)
    local figures = {}
    for _, point in ipairs(runs:select("ok")) do
      local figure = (not rule.keep or rule.keep(point)) and metric_of(point, rule.metric)
      if type(figure) == "number" then figures[#figures + 1] = figure end
    end
    return answer(native.analysis.bound_claim(rule, figures))
  end
end

--- A check on how a quantity of analyze.scaling grows.
-- @tparam table rule mode, quantity, verdicts (a list), axis
function M.growth(rule)
  return function(runs) return answer(native.analysis.growth_claim(rule, runs)) end
end

--- A check on which engine trades time and memory best: the smallest product of both, as multiples of plain training's.
-- @tparam table rule best (name of an engine), of (names of all engines that are compared)
function M.tradeoff(rule)
  return function(runs)
    local costs = {}
    for i, mode in ipairs(rule.of) do
      local pair = M.pairs_of(runs, "mode", mode, "none")[1]
      local own, plain = pair and pair.of.metrics or {}, pair and pair.to.metrics or {}
      local function times(key) return own[key] and plain[key] and own[key] / plain[key] end
      costs[i] = { name = mode, time = times("median_time_ms"), memory = times("peak_memory_bytes") }
    end
    return answer(native.analysis.tradeoff_claim(rule.best, costs))
  end
end

return M
