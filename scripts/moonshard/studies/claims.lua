--- Claims of the documents as checks: functions of results that say whether a claim holds, with figures.
-- A check returns true (confirmed), false (refuted) or nil (not measured), and a text.
local canonical_mode = require("moonshard.analyze.overhead").canonical_mode

local M = {}

--- "More" and "less" mean at least this share: a few bytes, or a hundredth of a millisecond, are no difference.
M.noticeable = 0.005

local function same(a, b) return tostring(a) == tostring(b) end

--- Pairs of good points that differ in one axis only: value `of` against value `to`.
-- @tparam Runs runs
-- @tparam string axis e.g. "mode"
-- @param of value of the first point of a pair
-- @param to value of the second
-- @treturn {table,...} each { of = point, to = point, at = "seq_length 64" }
function M.pairs_of(runs, axis, of, to)
  if axis == "mode" then of, to = canonical_mode(of), canonical_mode(to) end
  local list = {}
  for _, first in ipairs(runs:select("ok")) do
    if same(first.options[axis], of) then
      for _, second in ipairs(runs:select("ok")) do
        local matches, parts = same(second.options[axis], to), {}
        for _, name in ipairs(runs.axes) do
          if name ~= axis then
            matches = matches and same(second.options[name], first.options[name])
            parts[#parts + 1] = ("%s %s"):format(name, tostring(first.options[name]))
          end
        end
        if matches then list[#list + 1] = { of = first, to = second, at = table.concat(parts, ", ") } end
      end
    end
  end
  return list
end

local function metric_of(point, metric)
  if type(metric) == "function" then return metric(point) end
  return point.metrics[metric]
end

--- A check on the ratio of a figure between two values of an axis, at every point that has both.
-- @tparam table rule axis, of, to, metric (a name, or a function of a point), least, most (bounds of the ratio; either may
-- be absent; a bound of 1 means noticeably above or below it),
-- when ("all", the default, or "largest": only the last pair counts, as for claims about long sequences)
-- @treturn function a check
function M.ratio(rule)
  local least = rule.least == 1 and 1 + M.noticeable or rule.least
  local most = rule.most == 1 and 1 - M.noticeable or rule.most
  return function(runs)
    local pairs_found = M.pairs_of(runs, rule.axis or "mode", rule.of, rule.to)
    local texts, holds, measured = {}, true, 0
    for i, pair in ipairs(pairs_found) do
      local a, b = metric_of(pair.of, rule.metric), metric_of(pair.to, rule.metric)
      if type(a) == "number" and type(b) == "number" and b > 0 then
        measured = measured + 1
        local value = a / b
        local good = (not least or value >= least) and (not most or value <= most)
        if rule.when ~= "largest" then
          holds = holds and good
        elseif i == #pairs_found then
          holds = good
        end
        texts[#texts + 1] = ("%.4gx%s"):format(value, pair.at ~= "" and " at " .. pair.at or "")
      end
    end
    if measured == 0 then return nil, ("no pair of %s and %s has the figure"):format(tostring(rule.of), tostring(rule.to)) end
    local shown = #texts <= 6 and table.concat(texts, ", ") or M.range(texts)
    return holds, ("%s / %s: %s"):format(tostring(rule.of), tostring(rule.to), shown)
  end
end

--- The same for step time and for peak memory of two engines.
function M.time(of, to, least, most) return M.ratio { of = of, to = to, metric = "median_time_ms", least = least, most = most } end
function M.memory(of, to, least, most) return M.ratio { of = of, to = to, metric = "peak_memory_bytes", least = least, most = most } end

--- "1.02x … 1.4x in 12 pairs" of texts that open with a number.
function M.range(texts)
  local low, high
  for _, text in ipairs(texts) do
    local value = tonumber(text:match("^[%d%.e+-]+"))
    low, high = math.min(low or value, value), math.max(high or value, value)
  end
  return ("%.3gx … %.3gx in %d pairs"):format(low, high, #texts)
end

--- A check that a figure of every good point lies within bounds.
-- @tparam table rule metric, least, most, unit, keep (function of a point)
function M.bound(rule)
  return function(runs)
    local low, high, count
    for _, point in ipairs(runs:select("ok")) do
      local value = (not rule.keep or rule.keep(point)) and metric_of(point, rule.metric)
      if type(value) == "number" then
        low, high, count = math.min(low or value, value), math.max(high or value, value), (count or 0) + 1
      end
    end
    if not low then return nil, "not measured on this machine" end
    local holds = (not rule.least or low >= rule.least) and (not rule.most or high <= rule.most)
    return holds, ("%.3g … %.3g %s over %d points"):format(low, high, rule.unit or "", count)
  end
end

--- A check on how a quantity of analyze.scaling grows.
-- @tparam table rule mode, quantity, verdicts (a list), axis
function M.growth(rule)
  return function(runs)
    local analysis = require("moonshard.analyze.scaling").analyze(runs, { axis = rule.axis })
    local holds, texts = nil, {}
    for family, fits in pairs(analysis.fits) do
      local fit = fits[rule.quantity]
      local takes = not rule.mode or same(canonical_mode(analysis.modes[family]), canonical_mode(rule.mode))
      if fit and takes then
        if fit.verdict ~= "undecided" then
          local good = false
          for _, verdict in ipairs(rule.verdicts) do good = good or fit.verdict == verdict end
          holds = holds ~= false and good
        end
        texts[#texts + 1] = ("%s: T^%.2f, %s; a + b T is %.0f %% off, a + b T^2 %.0f %%"):format(family, fit.exponent, fit.verdict,
          100 * fit.linear.error, 100 * fit.quadratic.error)
      end
    end
    if #texts == 0 then return nil, "fewer than two lengths have the figure" end
    table.sort(texts)
    return holds, table.concat(texts, "; ")
  end
end

return M
