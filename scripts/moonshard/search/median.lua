--- Pruning by the median (as Optuna's MedianPruner): a point is stopped at a step whose best figure so far is worse than the median of what
-- earlier points had at that very step.
local M = {}

--- The median; of an even number the mean of both middle ones.
local function median(values)
  table.sort(values)
  local middle = #values / 2
  if #values % 2 == 1 then return values[math.ceil(middle)] end
  return (values[middle] + values[middle + 1]) / 2
end

--- Whether to stop.
-- @tparam table reports step -> figure of the point, the smaller the better
-- @tparam number step the last one
-- @tparam {table,...} others reports of points that ran to their end
-- @tparam table rule after (no step up to this one is judged), startup (how many others must have the step)
-- @treturn boolean
-- @treturn number the median that it was judged by; nil where it was not
function M.should_prune(reports, step, others, rule)
  if step <= rule.after then return false end
  local values = {}
  for _, other in ipairs(others) do values[#values + 1] = other[step] end
  if #values < math.max(rule.startup, 1) then return false end
  local best = math.huge
  for _, figure in pairs(reports) do
    if figure == figure then best = math.min(best, figure) end
  end
  local limit = median(values)
  return best > limit, limit
end

return M
