--- Results of a run folder: tables, overhead against a baseline, plots.
local guard = require "moonshard.options_guard"
local lazy_points = require "moonshard.lazy_points"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local overhead_of = require "moonshard.analyze.overhead"
local plot_points = require "moonshard.plot_points"
local shown = require "moonshard.reference.shown"
local statistics = require "moonshard.analyze.statistics"
local text_table = require "moonshard.text_table"

local Runs = {}
Runs.__index = Runs
local M = { class = Runs }

--- Baseline, tags and note of the sweep's request, which others may have written.
local function read_request(loaded)
  local request = loaded.request
  loaded.baseline = type(request.baseline) == "table" and request.baseline or nil
  loaded.tags = lists.select(type(request.tags) == "table" and request.tags or {}, function(tag) return type(tag) == "string" end)
  loaded.note = type(request.note) == "string" and request.note or nil
end

--- Results as an object; its list part are the points, so that #runs counts them.
local function as_runs(loaded)
  for i, point in ipairs(loaded.points) do loaded[i] = getmetatable(point) and point or shown.as_record(point) end
  return setmetatable(loaded, Runs)
end

local function load_one(path, level)
  if type(path) == "string" and not native.launch.exists(path .. "/sweep.json") then
    local loaded = require("moonshard.seed_results").load(path)
    if loaded then return as_runs(loaded) end
  end
  local ok, run_table = pcall(native.records.table, path)
  if not ok then error((tostring(run_table):gsub("^records%.table:", "ms.load:")), level + 1) end
  local loaded = native.records.head(run_table)
  read_request(loaded)
  loaded.points = lazy_points.of(loaded.path, run_table, loaded.count, loaded.problems)
  loaded.count = nil -- Runs:count is a method
  return as_runs(loaded)
end

--- Several folders as one: all points, all axes, and the axis "run", which names each point's folder. Figures and reports are of
-- folders: they go into the first.
local function joined(paths, level)
  local all = { points = {}, axes = { "run" }, plots = {}, problems = {}, environment = {}, request = {}, created = "", parts = {} }
  local names = {}
  for i, path in ipairs(paths) do
    local part = load_one(path, level + 1)
    all.parts[i], names[i] = part, part.name ~= "" and part.name or part.path:match("([^/]+)/*$")
    if lists.contains({ unpack(names, 1, i - 1) }, names[i]) then names[i] = part.path:match("([^/]+)/*$") end
    for _, axis in ipairs(part.axes) do
      if not lists.contains(all.axes, axis) then all.axes[#all.axes + 1] = axis end
    end
    for _, point in ipairs(part.points) do
      point.options = lists.merged(point.options, { run = names[i] })
      point.asked = lists.merged(point.asked or {}, { run = names[i] })
      all.points[#all.points + 1] = point
    end
    lists.extend(all.problems, part.problems or {})
    all.baseline = all.baseline or part.baseline
  end
  all.path, all.name, all.created = all.parts[1].path, table.concat(names, " + "), all.parts[1].created
  return as_runs(all)
end

--- The results in a run folder, also of a sweep that still runs; or in a folder that has only result files of the
-- profiling suites ({mode}_seq{N}_result.json and the like).
-- @tparam string|table path a folder, or a list of folders: their points together, with the axis "run"
-- @treturn Runs
function M.load(path)
  local paths = type(path) == "table" and path or { path }
  local loaded
  if #paths > 1 then loaded = joined(paths, 2) else loaded = load_one(paths[1], 2) end
  return loaded
end

--- Results of no point: what a dry run gives, so that a script may go on with them.
-- @tparam table parts path, name, axes, baseline
-- @treturn Runs
function M.none(parts)
  local nothing = { points = {}, plots = {}, problems = {}, environment = {}, request = {}, created = "", is_dry = true }
  return as_runs(lists.merged(nothing, parts))
end

--- Number of points of a status.
function Runs:count(status) return #self:select(status) end

--- Points of one status, or all that a function accepts.
function Runs:select(filter)
  return lists.select(self.points, type(filter) == "function" and filter or function(point) return point.status == filter end)
end

-- Metrics that have columns of their own names in Runs:rows.
local is_usual = lists.set { "median_time_ms", "peak_memory_mb", "tokens_per_s", "final_loss", "epsilon" }

-- More of these is better; of all other metrics less is.
local function is_gain(metric)
  for _, part in ipairs { "_per_s$", "utilization", "overlap", "^mfu_percent$", "accuracy", "score", "reward" } do
    if metric:find(part) then return true end
  end
  return false
end

--- What a call of runs:best asks for.
-- @treturn string metric
-- @treturn boolean whether the most of it is the best
local function read_best(given, level)
  if type(given) ~= "table" then return given or "median_time_ms", is_gain(tostring(given)) end
  local named = lists.merged(given)
  named[1] = nil
  local options = guard.check("runs:best", named, { "most", "least" }, level + 1)
  for key, value in pairs(options) do
    if type(value) ~= "boolean" then
      error(("runs:best: option '%s': expected true or false, got %s"):format(key, tostring(value)), level + 1)
    end
  end
  if options.most ~= nil and options.most == options.least then
    error("runs:best: expected most or least, got both", level + 1)
  end
  local metric, most = given[1] or "median_time_ms", options.most
  if most == nil and options.least ~= nil then most = not options.least end
  if most == nil then most = is_gain(tostring(metric)) end
  return metric, most
end

--- The good point with the least of a metric; with the most of it where its name says that more is better, or the caller does.
-- @tparam[opt="median_time_ms"] string|table metric or { metric, most = true }, { metric, least = true }
-- @treturn table point; nil when no point is good
-- @usage runs:best { "win_rate", most = true }
function Runs:best(metric)
  local most
  metric, most = read_best(metric, 2)
  local known, best = {}, nil
  for _, point in ipairs(self:select("ok")) do
    for key, value in pairs(point.metrics) do known[key] = type(value) == "number" or nil end
    local value, before = point.metrics[metric], best and best.metrics[metric]
    if type(value) == "number" then
      local is_better = not best or most and value > before or not most and value < before
      best = is_better and point or best
    end
  end
  if not best and next(known) then
    local hint = guard.hint(tostring(metric), lists.keys(known), '; ms.fields "metrics" lists them')
    error(("runs:best: expected a metric of these points, got '%s'%s"):format(tostring(metric), hint), 2)
  end
  return best
end

--- Names of figures that only the scripts' own functions have measured, sorted.
local function own_names(self)
  local seen = {}
  for _, point in ipairs(self.points) do
    for _, name in ipairs(outcome.own_metrics(point)) do seen[name] = not is_usual[name] or nil end
  end
  return lists.keys(seen)
end

--- Columns behind the first few that some row has a value in.
local function without_empty_columns(columns, rows, kept)
  local places = {}
  for c = 1, #columns do
    local is_used = c <= kept
    for _, row in ipairs(rows) do is_used = is_used or row[c] ~= nil end
    if is_used then places[#places + 1] = c end
  end
  local function chosen(list)
    local result = {}
    for i, c in ipairs(places) do result[i] = list[c] end
    return result
  end
  return chosen(columns), lists.map(rows, chosen)
end

--- Table of all points: axes, status, time with its spread, memory, throughput, loss, and what may be claimed of privacy.
-- @treturn {string,...} columns
-- @treturn {table,...} rows
function Runs:rows()
  local titles = { "status", "median ms", "IQR ms", "95 % of median", "peak MiB", "tokens/s", "loss", "epsilon" }
  local own = own_names(self)
  local columns, rows = text_table.of_points(self, self.points, lists.extend({}, titles, own), function(point)
    local metrics = point.metrics
    local is_good = point.status == "ok"
    local own_here = outcome.own_metrics(point)
    local is_experiment = #own_here == 0
    local row = { point.status, metrics.median_time_ms, is_good and statistics.iqr_ms(point) or nil,
      is_good and statistics.median_text(point) or nil, metrics.peak_memory_mb, metrics.tokens_per_s,
      not lists.contains(own_here, "loss") and metrics.final_loss or nil, -- a loss of one's own has its own column
      metrics.epsilon or is_good and is_experiment and "not private" or nil }
    for i, name in ipairs(own) do row[#titles + i] = metrics[name] end
    return row
  end)
  if #own == 0 then return columns, rows end
  return without_empty_columns(columns, rows, #self.axes + 1)
end

--- The same as aligned text; of very many points a part.
function Runs:table()
  local part, left_out = lazy_points.excerpt(self)
  local text = text_table.format(part:rows())
  return left_out and text .. "\n" .. left_out or text
end

--- Cost of each point against the baseline with the same other options. The baseline's own rows show 1 and 0.
-- @tparam[opt] table options baseline, axis (default: the sweep's own baseline, else "none" on the axis "mode")
-- @treturn Table; `is_baseline` marks the baseline's own rows
-- @usage print(runs:overhead { baseline = "none" })
function Runs:overhead(options)
  options = guard.check("runs:overhead", options, { "baseline", "axis" }, 2)
  local axis, baseline = overhead_of.baseline_of(self, options)
  local costs, found = overhead_of.costs(self, axis, baseline), false
  local titles = { "median ms", "time x", "95 % of time x", "peak MiB", "memory +MiB", "memory +%" }
  local columns, rows = text_table.of_points(self, self.points, titles, function(point)
    local cost = costs[point]
    found = found or cost.partner ~= nil
    if point.status ~= "ok" then return { point.status } end
    return { point.metrics.median_time_ms, cost.time_ratio, overhead_of.noise_text(point, cost), point.metrics.peak_memory_mb,
      cost.memory_bytes and cost.memory_bytes / 2 ^ 20, cost.memory_percent }
  end)
  if not found and not self.is_dry then
    error(("runs:overhead: expected a point with %s = '%s' as the baseline, got none"):format(axis, tostring(baseline)), 2)
  end
  return text_table.new { columns = columns, rows = rows, axis = axis, baseline = baseline,
    is_baseline = overhead_of.baseline_rows(self, costs) }
end

--- Tags and note of the sweep in one line; nil where it has none.
function Runs:labels()
  local parts = {}
  if self.tags and #self.tags > 0 then parts[1] = "tags: " .. table.concat(self.tags, ", ") end
  if self.note then parts[#parts + 1] = "note: " .. self.note end
  return #parts > 0 and table.concat(parts, "; ") or nil
end

--- Text and Markdown for summary.txt and summary.md.
function Runs:summary()
  local part, left_out = lazy_points.excerpt(self)
  local columns, rows = part:rows()
  local title = ("%s: %d points, %d ok"):format(self.name ~= "" and self.name or self.path, #self.points, self:count("ok"))
  local words = self:labels()
  if words then title = title .. "\n" .. words end
  local text = { title, "", text_table.format(columns, rows) }
  local markdown = { "# " .. title:gsub("\n", "\n\n"), "", text_table.markdown(columns, rows) }
  for _, line in ipairs { left_out or false, statistics.warning(part) or false, plot_points.modelled_note(part) or false } do
    if line then
      text[#text + 1] = line
      markdown[#markdown + 1] = "\n" .. line
    end
  end
  for _, point in ipairs(part.points) do
    if point.status ~= "ok" then
      text[#text + 1] = ("%s %s: %s"):format(point.id, point.status, point.error)
      markdown[#markdown + 1] = ("\n`%s` %s: %s"):format(point.id, point.status, point.error)
      for _, line in ipairs(outcome.savings(point.result)) do
        text[#text + 1] = "  -> " .. line
        markdown[#markdown + 1] = "- " .. line
      end
    end
  end
  if part:count("ok") > 0 and pcall(part.overhead, part) then
    local overhead = part:overhead()
    text[#text + 1] = "\nOverhead against " .. tostring(overhead.baseline) .. "\n\n" .. tostring(overhead)
    markdown[#markdown + 1] = "\n## Overhead against " .. tostring(overhead.baseline) .. "\n\n"
      .. text_table.markdown(overhead.columns, overhead.rows)
  end
  return table.concat(text, "\n") .. "\n", table.concat(markdown, "\n") .. "\n"
end

--- Draws figures that these results allow.
-- @tparam[opt="all"] string|table name of a figure (docs/plots.md), a list of names (with `out` = another folder), or "all"
-- @treturn {string,...} paths of the PNG files; of the plot specs where nothing can draw them
function Runs:plot(name)
  if self.is_dry then return {} end
  local paths = require("moonshard.plots").draw(self, name or "all") -- no tail call: errors count this level
  return paths
end

--- The points as a table object, for export.
-- @tparam[opt="points"] string which points, overhead, phases or memory
-- @treturn Table
function Runs:tabulate(which)
  local made
  if which == "overhead" or which == "memory" or which == "phases" then
    made = require("moonshard.analyze")[which](self)
  else
    local columns, rows = self:rows()
    made = text_table.new { columns = columns, rows = rows, points = self.points }
  end
  -- A file goes without the note below a summary.
  if made.points and plot_points.is_modelled(self) then
    made.columns[#made.columns + 1] = "modelled"
    for i, point in ipairs(made.points) do made.rows[i][#made.columns] = plot_points.modelled_part(point) or "" end
  end
  return made
end

function Runs:__tostring() return self:table() end

return M
