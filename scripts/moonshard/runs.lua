--- Results of a run folder: tables, overhead against a baseline, plots.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}
local Runs = {}
Runs.__index = Runs

--- The results in a run folder, also of a sweep that still runs.
-- @tparam string path
-- @treturn Runs
function M.load(path)
  local ok, loaded = pcall(native.records.load, path)
  if not ok then error((tostring(loaded):gsub("^records%.load:", "ms.load:")), 2) end
  return setmetatable(loaded, Runs)
end

--- Number of points of a status.
function Runs:count(status)
  local n = 0
  for _, point in ipairs(self.points) do
    if point.status == status then n = n + 1 end
  end
  return n
end

--- Points of one status, or all that a function accepts.
function Runs:select(filter)
  local chosen = {}
  for _, point in ipairs(self.points) do
    local takes = type(filter) == "function" and filter(point) or point.status == filter
    if takes then chosen[#chosen + 1] = point end
  end
  return chosen
end

local function shared_columns(self)
  local columns = {}
  for i, axis in ipairs(self.axes) do columns[i] = axis end
  return columns
end

local function axis_values(self, point)
  local row = {}
  for i, axis in ipairs(self.axes) do row[i] = point.options[axis] end
  return row
end

--- Table of all points: axes, status, time, memory, throughput, loss.
-- @treturn {string,...} columns
-- @treturn {table,...} rows
function Runs:rows()
  local columns = shared_columns(self)
  for _, title in ipairs { "status", "median ms", "peak MiB", "tokens/s", "loss" } do columns[#columns + 1] = title end
  local rows = {}
  for i, point in ipairs(self.points) do
    local row, n, metrics = axis_values(self, point), #self.axes, point.metrics
    row[n + 1], row[n + 2], row[n + 3] = point.status, metrics.median_time_ms, metrics.peak_memory_mb
    row[n + 4], row[n + 5] = metrics.tokens_per_s, metrics.final_loss
    rows[i] = row
  end
  return columns, rows
end

--- The same as aligned text.
function Runs:table() return text_table.format(self:rows()) end

--- The point that equals another in all axes but `axis`, where it has the baseline's value.
local function partner_of(self, point, axis, value)
  for _, other in ipairs(self.points) do
    local same = other.options[axis] == value
    for _, name in ipairs(self.axes) do
      same = same and (name == axis or other.options[name] == point.options[name])
    end
    if same then return other end
  end
end

--- The engine that a name stands for: "no_dp" is the seeds' word for "none".
local function canonical_mode(name)
  for _, engine in ipairs(package.loaded["moonshard"].engines()) do
    if engine.name == name then return name end
    for _, alias in ipairs(engine.aliases) do
      if alias == name then return engine.name end
    end
  end
  return name
end

local Overhead = {}
Overhead.__index = Overhead
function Overhead:__tostring() return text_table.format(self.columns, self.rows) end

--- Cost of each point against the baseline with the same other options.
-- @tparam[opt] table options baseline (default "none"), axis (default "mode")
-- @treturn Overhead prints as a table; rows and columns are its fields
-- @usage print(runs:overhead { baseline = "none" })
function Runs:overhead(options)
  options = guard.check("runs:overhead", options, { "baseline", "axis" }, 2)
  local axis = options.axis or "mode"
  local baseline = options.baseline or "none"
  if axis == "mode" then baseline = canonical_mode(baseline) end
  local columns = shared_columns(self)
  for _, title in ipairs { "median ms", "time x", "peak MiB", "memory +MiB", "memory +%" } do columns[#columns + 1] = title end
  local rows, found = {}, false
  for _, point in ipairs(self.points) do
    local row, n = axis_values(self, point), #self.axes
    local partner = partner_of(self, point, axis, baseline)
    found = found or partner ~= nil
    if point.status ~= "ok" then
      row[n + 1] = point.status
    else
      row[n + 1], row[n + 3] = point.metrics.median_time_ms, point.metrics.peak_memory_mb
      if partner and partner.status == "ok" then
        row[n + 2] = point.metrics.median_time_ms / partner.metrics.median_time_ms
        row[n + 4] = point.metrics.peak_memory_mb - partner.metrics.peak_memory_mb
        row[n + 5] = 100 * row[n + 4] / partner.metrics.peak_memory_mb
      end
    end
    rows[#rows + 1] = row
  end
  if not found then
    error(("runs:overhead: expected a point with %s = '%s' as the baseline, got none"):format(axis, tostring(baseline)), 2)
  end
  return setmetatable({ columns = columns, rows = rows, axis = axis, baseline = baseline }, Overhead)
end

--- Text and Markdown for summary.txt and summary.md.
function Runs:summary()
  local columns, rows = self:rows()
  local title = ("%s: %d points, %d ok"):format(self.name ~= "" and self.name or self.path, #self.points, self:count("ok"))
  local text = { title, "", text_table.format(columns, rows) }
  local markdown = { "# " .. title, "", text_table.markdown(columns, rows) }
  for _, point in ipairs(self.points) do
    if point.status ~= "ok" then
      text[#text + 1] = ("%s %s: %s"):format(point.id, point.status, point.error)
      markdown[#markdown + 1] = ("\n`%s` %s: %s"):format(point.id, point.status, point.error)
    end
  end
  if self:count("ok") > 0 and pcall(self.overhead, self) then
    local overhead = self:overhead()
    text[#text + 1] = "\nOverhead against " .. overhead.baseline .. "\n\n" .. tostring(overhead)
    markdown[#markdown + 1] = "\n## Overhead against " .. overhead.baseline .. "\n\n"
      .. text_table.markdown(overhead.columns, overhead.rows)
  end
  return table.concat(text, "\n") .. "\n", table.concat(markdown, "\n") .. "\n"
end

--- Draws one figure, or all that these results allow.
-- @tparam[opt="all"] string name of a file in scripts/plot, or "all"
-- @treturn {string,...} paths of the PNG files; of the plot specs where nothing can draw them
function Runs:plot(name)
  local paths = require("moonshard.plots").draw(self, name or "all") -- no tail call: errors count this level
  return paths
end

function Runs:__tostring() return self:table() end

return M
