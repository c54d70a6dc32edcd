--- Results side by side: the options in which they differ, then their figures with the ratio to the first.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local outcome = require "moonshard.sweep.outcome"
local plot_points = require "moonshard.plot_points"
local statistics = require "moonshard.analyze.statistics"
local text_table = require "moonshard.text_table"

local M = {}

--- Figures that are shown when none are named.
M.usual = { "median_time_ms", "avg_time_ms", "p95_time_ms", "tokens_per_s", "samples_per_s", "peak_memory_mb", "rss_bytes",
  "engine_kept_bytes", "comm_bytes", "comm_work_ms", "comm_exposed_ms", "comm_overlap_percent", "gpu_utilization_percent",
  "mfu_percent", "data_share_percent", "end_to_end_s", "final_loss", "clip_fraction" }

-- Files of the profiling suites have figures and options in one table.
local seed_metrics = { peak_memory_mb = true, peak_memory_gb = true, avg_time_ms = true }

local function flat_seed(record)
  local options, metrics = {}, {}
  for key, value in pairs(lists.merged(record, type(record.config) == "table" and record.config)) do
    if seed_metrics[key] then
      metrics[key] = value
    elseif type(value) ~= "table" then
      options[key] = value
    end
  end
  return options, metrics
end

--- A result file as an item: a point's result.json, or a file of the profiling suites.
-- @tparam string path
-- @treturn table name, path, status, options, metrics, result
function M.read(path)
  local record = native.files.read_json(path)
  if type(record) ~= "table" then error(("%s: expected a result, got a %s"):format(path, type(record)), 0) end
  local name = path:match("points/([^/]+)/result%.json$") or path:match("([^/]+)$")
  if type(record.options) == "table" then
    return { name = name, path = path, status = record.status or "ok", options = record.options, metrics = record.metrics or {},
      result = record }
  end
  local options, metrics = flat_seed(record)
  if next(metrics) == nil then
    error(("%s: expected a result with options and metrics, or with peak_memory_mb and avg_time_ms; got neither"):format(path), 0)
  end
  return { name = name, path = path, status = "ok", options = options, metrics = metrics, result = record }
end

local function sorted_keys(items, field)
  local all = {}
  for _, item in ipairs(items) do
    for key in pairs(item[field]) do all[key] = true end
  end
  return lists.keys(all)
end

--- Options in which items differ (all of them with `all`).
-- @treturn {string,...} names
function M.differing(items, all)
  return lists.select(sorted_keys(items, "options"), function(key)
    local differs = false
    for _, item in ipairs(items) do differs = differs or item.options[key] ~= items[1].options[key] end
    return differs or all
  end)
end

local function shown(value)
  if value == nil then return "-" end
  if type(value) == "number" then return value end
  return tostring(value)
end

--- Figures that scripts' own functions gave.
local function own_of(items)
  local is_usual, names = lists.set(M.usual), {}
  for _, item in ipairs(items) do
    for _, name in ipairs(outcome.own_metrics(item)) do names[name] = not is_usual[name] or nil end
  end
  return lists.keys(names)
end

--- Figures that some item has, in a fixed order.
function M.metrics_of(items, options)
  local known = sorted_keys(items, "metrics")
  local has = lists.set(known)
  for _, name in ipairs(options.metrics or {}) do
    if not has[name] then error(("compare: no result has the figure '%s'%s"):format(name, guard.hint(name, known)), 0) end
  end
  if options.metrics or options.all then return options.metrics or known end
  return lists.extend(lists.select(M.usual, function(name) return has[name] end), own_of(items))
end

local function is_number(value) return type(value) == "number" and value == value end

--- "1.25x" of a figure of two items, with "within noise" where the interval of the ratio contains 1; or nil.
local function ratio(item, first, metric)
  local value, reference = item.metrics[metric], first.metrics[metric]
  if not is_number(value) or not is_number(reference) or reference == 0 then return nil end
  local interval = statistics.of_ratio(item, first, metric)
  return ("%.3gx%s"):format(value / reference, interval and statistics.contains(interval, 1) and " within noise" or "")
end

--- What a reader should know of these items' figures: what is modelled, and which times say nothing of their noise.
-- @treturn {string,...} notes; nil where there is nothing to say
local function notes_of(items)
  local notes, judged = {}, false
  for _, item in ipairs(items) do
    local found, reason = statistics.of_metric(item, "median_time_ms")
    if reason then notes[#notes + 1] = ("%s: %s; its times may differ by noise alone."):format(item.name, reason) end
    judged = judged or found ~= nil
  end
  if #notes > 3 then notes = { ("%d results have fewer than %d steps, and no interval."):format(#notes, statistics.least_steps) } end
  if judged then notes[#notes + 1] = ("Within noise: the %d %% interval of the ratio contains 1."):format(statistics.level) end
  local modelled = plot_points.modelled_note { points = items }
  if modelled then table.insert(notes, 1, modelled) end
  return #notes > 0 and notes or nil
end

--- A column for each, and behind all but the first one for its ratio.
local function columns_with_ratios(corner, named)
  local columns = { corner, named[1].name }
  for i = 2, #named do lists.extend(columns, { named[i].name, "x" }) end
  return columns
end

--- Up to four results: options and figures as rows, a column per result.
local function side_by_side(items, options)
  local columns = lists.extend({ "" }, lists.column(items, "name"))
  local option_rows = lists.map(M.differing(items, options.all), function(key)
    return lists.extend({ key }, lists.map(items, function(item) return shown(item.options[key]) end))
  end)
  local metric_columns = columns_with_ratios("", items)
  local metric_rows = lists.map(M.metrics_of(items, options), function(key)
    local row = { key, items[1].metrics[key] }
    for i = 2, #items do
      row[2 * i - 1], row[2 * i] = items[i].metrics[key], ratio(items[i], items[1], key)
    end
    return row
  end)
  return { text_table.new { title = options.all and "Options" or "Options that differ", columns = columns, rows = option_rows },
    text_table.new { title = "Figures, and their ratio to the first", columns = metric_columns, rows = metric_rows,
      notes = notes_of(items) } }
end

--- The figures of a wide table: those of these three that were measured.
local function few_of(items)
  local has = lists.set(sorted_keys(items, "metrics"))
  -- Files of the suites have the mean only.
  local few = lists.select({ has.median_time_ms and "median_time_ms" or "avg_time_ms", "peak_memory_mb", "tokens_per_s" },
    function(name) return has[name] end)
  return lists.extend(few, own_of(items))
end

--- Many results: a row per result.
local function as_rows(items, options)
  local names = M.differing(items, false)
  local metrics = M.metrics_of(items, { all = options.all, metrics = options.metrics or not options.all and few_of(items) or nil })
  local columns = lists.extend({}, names, { "status" })
  for _, name in ipairs(metrics) do lists.extend(columns, { name, "x" }) end
  local rows = lists.map(items, function(item, r)
    local row, n = lists.map(names, function(name) return shown(item.options[name]) end), #names + 1
    row[n] = item.status
    for i, name in ipairs(metrics) do
      row[n + 2 * i - 1], row[n + 2 * i] = item.metrics[name], r > 1 and ratio(item, items[1], name) or nil
    end
    return row
  end)
  return { text_table.new { title = ("%d results: options that differ, figures, and their ratio to the first"):format(#items),
    columns = columns, rows = rows, notes = notes_of(items) } }
end

--- Machines and versions in which folders differ; nil where they are the same or unknown.
local function environments(folders)
  local heads = {}
  for f, folder in ipairs(folders) do
    heads[f] = { name = folder.name, options = {}, metrics = {} }
    for key, value in pairs(folder.environment or {}) do
      if type(value) == "table" then value = table.concat(value, ", ") end
      if key ~= "created" then heads[f].options[key] = value end
    end
  end
  local found = side_by_side(heads, {})[1]
  found.title = "Machines and versions that differ"
  return #found.rows > 0 and found or nil
end

--- Several folders: points that agree in what varies inside the folders stand beside each other.
local function folders_side_by_side(folders, options)
  local is_varying = {}
  for _, folder in ipairs(folders) do is_varying = lists.merged(is_varying, lists.set(M.differing(folder.items, false))) end
  local varying, heads, order, matched = lists.keys(is_varying), {}, {}, {}
  for f, folder in ipairs(folders) do
    heads[f] = { name = folder.name, options = {}, metrics = {} }
    for key, value in pairs(folder.items[1].options) do
      if not is_varying[key] then heads[f].options[key] = value end
    end
    heads[f].options.tags, heads[f].options.note = folder.tags, folder.note
    for _, item in ipairs(folder.items) do
      local parts = lists.map(varying, function(name) return ("%s=%s"):format(name, tostring(item.options[name])) end)
      local key = #parts > 0 and table.concat(parts, " ") or "point"
      if not matched[key] then
        matched[key] = {}
        order[#order + 1] = key
      end
      matched[key][f] = item
    end
  end
  local tables = { side_by_side(heads, { all = options.all })[1] }
  tables[1].title = options.all and "Options of the folders" or "Options in which the folders differ"
  tables[2] = environments(folders)
  local items = lists.extend({}, unpack(lists.column(folders, "items")))
  local names = options.metrics or not options.all and few_of(items) or nil
  for _, metric in ipairs(M.metrics_of(items, { all = options.all, metrics = names })) do
    local rows = lists.map(order, function(key)
      local first, row = matched[key][1], { key }
      for f = 1, #folders do
        local item = matched[key][f]
        local good, c = item and item.status == "ok", f == 1 and 2 or 2 * f - 1
        row[c] = good and item.metrics[metric] or item and item.status or nil
        if f > 1 then row[c + 1] = good and first and ratio(item, first, metric) or nil end
      end
      return row
    end)
    tables[#tables + 1] = text_table.new { title = metric, columns = columns_with_ratios("point", folders), rows = rows }
  end
  tables[#tables].notes = notes_of(items)
  return tables
end

local Comparison = {}
Comparison.__index = Comparison
M.class = Comparison
function Comparison:__tostring()
  local parts = lists.map(self.tables, function(each) return #each.rows > 0 and tostring(each) or each.title .. "\n\n(none)" end)
  return table.concat(parts, "\n\n")
end

--- Compares results.
-- @tparam {table,...} sources lists of items, each { name = …, items = { item, … } }: one per folder or file
-- @tparam[opt] table options all (also what agrees), metrics (names of figures)
-- @treturn Comparison prints as tables; `tables` and `items` are its fields
function M.analyze(sources, options)
  options = guard.check("ms.compare", options, { "all", "metrics", "only" }, 2)
  local items = lists.extend({}, unpack(lists.column(sources, "items")))
  if #items == 0 then error("ms.compare: expected at least one result, got none", 2) end
  local tables
  local has_folders = #lists.select(sources, function(source) return #source.items > 1 end) > 0
  if has_folders and #sources > 1 then
    tables = folders_side_by_side(sources, options)
  elseif #items <= 4 then
    tables = side_by_side(items, options)
  else
    tables = as_rows(items, options)
  end
  return setmetatable({ tables = tables, items = items }, Comparison)
end

return M
