--- The `search` table of a sweep, and what a runner does with it.
--   search = { method = "tpe" | "random", trials = 40, seed = 0, minimize = "final_loss", space = { lr = { log = { 1e-5, 1e-1 } }, … },
--              prune = { after = 5, startup = 4, metric = "loss" } }
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local studies = require "moonshard.search.study"

local Search = {}
Search.__index = Search
local M = {}

M.options = { "method", "trials", "seed", "minimize", "maximize", "space", "startup", "prune" }

-- What steps call a metric of the whole point.
local step_names = { final_loss = "loss" }

--- Reads and checks a request.
-- @tparam table given
-- @tparam number level of the caller, as for error()
-- @treturn Search
function M.read(given, level)
  local ask = guard.check("ms.sweep: search", given or {}, M.options, level + 1)
  local metric = ask.minimize or ask.maximize
  if type(metric) ~= "string" or ask.minimize and ask.maximize then
    error(("ms.sweep: search: expected minimize or maximize = a metric, got %s; e.g. minimize = \"final_loss\""):format(
      ask.minimize and ask.maximize and "both" or tostring(metric)), level + 1)
  end
  if ask.trials == nil then error("ms.sweep: search: expected trials = how many points to try, got nothing", level + 1) end
  local rule = ask.prune
  if rule ~= nil and rule ~= false then
    rule = guard.check("ms.sweep: search.prune", rule == true and {} or rule, { "after", "startup", "metric" }, level + 1)
  end
  local made, study = pcall(studies.new, ask.space, { method = ask.method, trials = ask.trials, seed = ask.seed, startup = ask.startup,
    direction = ask.maximize and "maximize" or "minimize", prune = rule and { after = rule.after, startup = rule.startup } })
  if not made then error("ms.sweep: " .. tostring(study):gsub("^.-search: ", "search: ", 1), level + 1) end
  return setmetatable({ study = study, metric = metric, step_metric = rule and (rule.metric or step_names[metric] or metric) or nil,
    is_gain = ask.maximize ~= nil }, Search)
end

--- Names of the options that are searched: the sweep's axes.
function Search:axes() return lists.column(self.study.dimensions, "name") end

--- How many points it tries at most.
function Search:trials() return math.min(self.study.trials, self.study.size) end

--- One line on what it is going to do.
function Search:describe()
  return ("search: %d trials by %s over %s, the %s %s"):format(self:trials(), self.study.method, table.concat(self:axes(), ", "),
    self.is_gain and "most" or "least", self.metric)
end

--- The next point: `values` are its options, as a grid would name them; nil when there is none left.
function Search:next() return self.study:ask() end

-- Opens the reason in the record of a point that was stopped; it has the status "skipped".
local pruned_mark = "pruned at step"

local function is_pruned(record)
  return record.status == "skipped" and type(record.error) == "string" and record.error:sub(1, #pruned_mark) == pruned_mark
end

local function steps_of(record)
  local steps = type(record.result) == "table" and record.result.steps
  return lists.select(type(steps) == "table" and steps or {}, function(step)
    return type(step) == "table" and type(step.step) == "number"
  end)
end

--- Takes the record of a point: ended, failed, out of memory or stopped.
-- @tparam table point of Search:next
-- @tparam table record as native.records.load_point gives it
function Search:done(point, record)
  local value
  if record.status == "ok" then value = record.metrics[self.metric] end
  if is_pruned(record) then
    local steps = steps_of(record)
    value = #steps > 0 and steps[#steps][self.step_metric or ""] or nil
  end
  self.study:tell(point, value, is_pruned(record))
end

--- Feeds a point of an earlier process again: its values, its steps, its record.
-- @tparam table asked values of the searched options, as sweep.json keeps them
-- @tparam[opt] table record nil or without a result: it is under way again
-- @treturn table point
function Search:replay(asked, record)
  local values = {}
  for _, name in ipairs(self:axes()) do values[name] = asked[name] end
  local point = self.study:add(values)
  if not record or record.status == "running" or record.status == "planned" then return point end
  for _, step in ipairs(self.step_metric and steps_of(record) or {}) do self.study:report(point, step.step, step[self.step_metric]) end
  self:done(point, record)
  return point
end

--- Takes a step of a point at work.
-- @tparam number step
-- @tparam table values by name
-- @treturn string nil to go on; else why it is to be stopped, the error of a record with the status "skipped"
function Search:step(point, step, values)
  point.steps = point.steps or {}
  table.insert(point.steps, lists.merged({ warmup = false }, values, { step = step }))
  local value = self.step_metric and values[self.step_metric]
  if value == nil then return nil end
  local stops, limit = self.study:report(point, step, value)
  if not stops then return nil end
  return ("%s %g: its best %s is %s than the median of earlier points there, %.6g"):format(pruned_mark, step, self.step_metric,
    self.is_gain and "less" or "more", limit)
end

--- One line on the best point so far; nil before one has ended.
function Search:describe_best()
  local best = self.study:best()
  if not best then return nil end
  local parts = lists.map(self.study.dimensions, function(dimension)
    local value = best.values[dimension.name]
    return ("%s=%s"):format(dimension.name, type(value) == "number" and ("%.6g"):format(value) or tostring(value))
  end)
  return ("best of %d: %s %.6g at %s"):format(#self.study.points, self.metric, best.value, table.concat(parts, " "))
end

return M
