--- Points of a run folder. Of a small one all is read at once; of a large one each point holds its place and status, and options,
-- metrics and record are read when they are looked at, so that 100,000 points fit into memory.
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local shown = require "moonshard.reference.shown"

local M = {}

--- Folders of at most so many points are read at once.
M.few_points = 200

-- What Runs and figures expect of a point.
local function complete(point)
  if next(point.asked or {}) == nil then point.asked = nil end
  point.result = point.result or {}
  return shown.as_record(point)
end

local function read_now(path, run_table, count, problems)
  local points = {}
  for i = 1, count do
    local point = native.records.summary(run_table, i)
    if point.has_record then
      local whole = native.records.load_point(path, point.id)
      point.result = whole.result
      if point.problem == "" then point.problem = whole.problem end
    end
    if point.problem ~= "" and #problems < 100 then problems[#problems + 1] = point.problem end
    points[i] = complete(point)
  end
  return points
end

local is_summary = lists.set { "error", "options", "metrics", "asked", "file", "own_metrics", "problem" }

--- Points that read themselves. Neighbouring looks are mostly at one point: the last summary is kept.
local function read_later(path, run_table)
  local last_number, last_summary
  local meta = shown.record_meta(function(point, key)
    if key == "result" then return native.records.load_point(path, point.id).result end
    if not is_summary[key] then return nil end
    if last_number ~= point.number then
      last_summary = native.records.summary(run_table, point.number)
      if next(last_summary.asked or {}) == nil then last_summary.asked = nil end
      last_number = point.number
    end
    return last_summary[key]
  end)
  local points = native.records.points(run_table)
  for _, point in ipairs(points) do setmetatable(point, meta) end
  return points
end

--- All points of a folder.
-- @tparam table run_table as native.records.table gives it
-- @tparam {string,...} problems gets what could not be read of them
function M.of(path, run_table, count, problems)
  if count <= M.few_points then return read_now(path, run_table, count, problems) end
  return read_later(path, run_table)
end

local in_excerpt, most_bad = 200, 50

--- The points of an excerpt, in order: some that have no result, and others from the beginning.
local function chosen_points(points)
  local bad = 0
  for _, point in ipairs(points) do bad = bad + (point.status ~= "ok" and 1 or 0) end
  local bad_left = math.min(bad, math.max(most_bad, in_excerpt - (#points - bad)))
  local good_left = in_excerpt - bad_left
  return lists.select(points, function(point)
    local is_good = point.status == "ok"
    if is_good then good_left = good_left - 1 else bad_left = bad_left - 1 end
    return (is_good and good_left or bad_left) >= 0
  end)
end

--- What fits on a page: all points up to a number, else 200 of them. An excerpt is read at once, because every table and figure
-- looks at every record.
-- @tparam Runs results
-- @tparam[opt=1000] number most
-- @treturn Runs results, or others with `whole` = results
-- @treturn string nil, or a line that says what is left out
function M.excerpt(results, most)
  if #results.points <= (most or 1000) then return results, nil end
  local part = rawget(results, "part")
  if not part then
    part = { whole = results }
    for key, value in pairs(results) do
      if type(key) == "string" and key ~= "points" then part[key] = value end
    end
    part.points = lists.map(chosen_points(results.points), function(point) return shown.as_record(M.plain_point(point)) end)
    for i, point in ipairs(part.points) do part[i] = point end
    results.part = setmetatable(part, getmetatable(results))
  end
  return part, ("%d of %d points are shown here; index.csv has all."):format(#part.points, #results.points)
end

--- A point as a plain table: the native functions look at fields, and call nothing.
function M.plain_point(point)
  return { id = point.id, status = point.status, error = point.error, options = point.options, metrics = point.metrics, asked = point.asked,
    result = point.result, own_metrics = point.own_metrics, file = point.file }
end

--- Results with plain points, for native.analysis.
function M.plain(results)
  if #results.points <= M.few_points then return results end
  local copy = {}
  for key, value in pairs(results) do copy[key] = value end
  copy.points = lists.map(results.points, M.plain_point)
  return copy
end

return M
