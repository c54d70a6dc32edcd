--- A search as a state machine: ask for a point, report its steps, tell its value. It starts nothing and writes nothing.
local generators = require "moonshard.search.generator"
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local median = require "moonshard.search.median"
local spaces = require "moonshard.search.space"
local tpe = require "moonshard.search.tpe"

local Study = {}
Study.__index = Study
local M = {}

M.methods = { "tpe", "random" }
M.options = { "method", "trials", "seed", "direction", "startup", "candidates", "prune" }
local few_redraws, redraws = 20, 2000 -- tries for a point that was not there before

local function check(options, level)
  local function fail(key, wanted)
    error(("search: option '%s': expected %s, got %s"):format(key, wanted, tostring(options[key])), level + 2)
  end
  if options.method ~= nil and not lists.contains(M.methods, options.method) then fail("method", "tpe or random") end
  if options.direction ~= nil and options.direction ~= "minimize" and options.direction ~= "maximize" then
    fail("direction", "minimize or maximize")
  end
  for key, least in pairs { trials = 1, startup = 0, candidates = 1, seed = -2 ^ 53 } do
    local value = options[key]
    if value ~= nil and not (type(value) == "number" and value == math.floor(value) and value >= least and value <= 2 ^ 53) then
      fail(key, key == "seed" and "a whole number" or ("a whole number from %d on"):format(least))
    end
  end
  if options.prune == nil or options.prune == false then return end
  local rule = guard.check("search: prune", options.prune, { "after", "startup" }, level + 1)
  for key, value in pairs(rule) do
    if type(value) ~= "number" or value < 0 or value ~= value then
      error(("search: prune: option '%s': expected 0 or more, got %s"):format(key, tostring(value)), level + 1)
    end
  end
end

--- A search over a space.
-- @tparam table space option = dimension (space.lua)
-- @tparam[opt] table options method ("tpe", "random"), trials (no limit), seed (0), direction ("minimize", "maximize"), startup (10: points
-- drawn at random before TPE), candidates (24), prune = { after = 0, startup = 5 }
-- @treturn Study
function M.new(space, options)
  options = guard.check("search", options, M.options, 2)
  check(options, 2)
  local dimensions = spaces.read(space, 2)
  return setmetatable({ dimensions = dimensions, size = spaces.size(dimensions), method = options.method or "tpe",
    trials = options.trials or math.huge, seed = options.seed or 0, sign = options.direction == "maximize" and -1 or 1,
    startup = options.startup or 10, candidates = options.candidates or 24,
    rule = options.prune and lists.merged({ after = 0, startup = 5 }, options.prune) or nil, points = {}, keys = {} }, Study)
end

--- Ended points by their values, the good ones first; those that failed and those under way count as bad ones, so that points side by side
-- keep away from each other (a liar that always says the worst).
local function split(self)
  local ended, others = {}, {}
  for _, point in ipairs(self.points) do
    if point.state == "ended" then ended[#ended + 1] = point else others[#others + 1] = point end
  end
  table.sort(ended, function(a, b)
    if a.score ~= b.score then return a.score < b.score end
    return a.number < b.number
  end)
  local good, bad = {}, {}
  for i, point in ipairs(ended) do table.insert(i <= tpe.num_good(#ended) and good or bad, point) end
  return good, lists.extend(bad, others)
end

local function column(points, name) return lists.map(points, function(point) return point.values[name] end) end

local function count_told(self)
  return #lists.select(self.points, function(point) return point.state ~= "under way" end)
end

local function draw(self, generator)
  local values = {}
  local good, bad
  if self.method == "tpe" and count_told(self) >= math.max(self.startup, 1) then good, bad = split(self) end
  for _, dimension in ipairs(self.dimensions) do
    values[dimension.name] = good and #good > 0
      and tpe.suggest(dimension, column(good, dimension.name), column(bad, dimension.name), generator, self.candidates)
      or spaces.draw(dimension, generator)
  end
  return values
end

--- The next point to try.
-- @treturn table number (from 1), values (by option); nil when all trials are asked for, or a finite space has no more points
-- (or so few that chance does not find them)
function Study:ask()
  if #self.points >= self.trials or #self.points >= self.size then return nil end
  local number = #self.points + 1
  -- Each trial has a stream of its own: a search that goes on draws what it would have drawn.
  local generator = generators.new(self.seed, number)
  local values = draw(self, generator)
  for try = 1, redraws do
    if not self.keys[spaces.key(self.dimensions, values)] then return self:add(values) end
    values = {}
    -- Where the good ones are all tried, any other.
    for _, dimension in ipairs(self.dimensions) do values[dimension.name] = spaces.draw(dimension, generator) end
    if try < few_redraws then values = draw(self, generator) end
  end
end

--- A point that was asked for in an earlier process, or that somebody wants to be tried. Numbers go on.
-- @tparam table values of all options of the space
function Study:add(values)
  local point = { number = #self.points + 1, values = values, state = "under way", reports = {} }
  self.points[point.number], self.keys[spaces.key(self.dimensions, values)] = point, true
  return point
end

local function own(self, point, what)
  if type(point) ~= "table" or self.points[point.number] ~= point then
    error(("search:%s: expected a point of search:ask(), got %s"):format(what, tostring(point)), 3)
  end
end

--- Notes a point's value. Nil or no finite number: it has failed, and counts as worse than all others.
-- @tparam[opt] boolean is_pruned it was stopped: its value is that of its last step, and no median counts it
function Study:tell(point, value, is_pruned)
  own(self, point, "tell")
  local is_figure = type(value) == "number" and value == value and math.abs(value) < math.huge
  point.value, point.is_pruned = is_figure and value or nil, is_pruned or nil
  point.state, point.score = is_figure and "ended" or "failed", is_figure and self.sign * value or nil
end

--- Notes a figure of a step.
-- @treturn boolean whether to stop the point
-- @treturn number the median that it was judged by
function Study:report(point, step, value)
  own(self, point, "report")
  local is_figure = type(value) == "number" and value == value
  point.reports[step] = is_figure and self.sign * value or math.huge
  if not self.rule then return false end
  local others = lists.select(self.points, function(other) return other ~= point and other.state == "ended" and not other.is_pruned end)
  local stops, limit = median.should_prune(point.reports, step, lists.column(others, "reports"), self.rule)
  return stops, limit and self.sign * limit
end

--- The best point so far; nil before one has ended.
function Study:best()
  local best
  for _, point in ipairs(self.points) do
    if point.state == "ended" and not point.is_pruned and (not best or point.score < best.score) then best = point end
  end
  return best
end

return M
