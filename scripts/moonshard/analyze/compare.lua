--- Results side by side: the options in which they differ, then their figures with the ratio to the first.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
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
  local function take(table_of_values)
    for key, value in pairs(table_of_values) do
      if seed_metrics[key] then
        metrics[key] = value
      elseif type(value) ~= "table" then
        options[key] = value
      end
    end
  end
  take(record)
  take(type(record.config) == "table" and record.config or {})
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
  local keys, seen = {}, {}
  for _, item in ipairs(items) do
    for key in pairs(item[field]) do
      if not seen[key] then
        seen[key] = true
        keys[#keys + 1] = key
      end
    end
  end
  table.sort(keys)
  return keys
end

--- Options in which items differ (all of them with `all`).
-- @treturn {string,...} names
function M.differing(items, all)
  local names = {}
  for _, key in ipairs(sorted_keys(items, "options")) do
    local differs = false
    for _, item in ipairs(items) do differs = differs or item.options[key] ~= items[1].options[key] end
    if differs or all then names[#names + 1] = key end
  end
  return names
end

local function shown(value)
  if value == nil then return "-" end
  if type(value) == "number" then return value end
  return tostring(value)
end

--- Figures that some item has, in a fixed order.
function M.metrics_of(items, options)
  local has, names = {}, {}
  for _, key in ipairs(sorted_keys(items, "metrics")) do has[key] = true end
  if options.metrics then
    for _, name in ipairs(options.metrics) do
      if not has[name] then
        local near = guard.nearest(name, sorted_keys(items, "metrics"))
        error(("compare: no result has the figure '%s'%s"):format(name, near and ("; did you mean '%s'?"):format(near) or ""), 0)
      end
      names[#names + 1] = name
    end
    return names
  end
  for _, name in ipairs(options.all and sorted_keys(items, "metrics") or M.usual) do
    if has[name] then names[#names + 1] = name end
  end
  return names
end

local function is_number(value) return type(value) == "number" and value == value end

--- "1.25x" of two figures, or nil.
local function ratio(value, first)
  if is_number(value) and is_number(first) and first ~= 0 then return ("%.3gx"):format(value / first) end
end

--- Up to four results: options and figures as rows, a column per result.
local function side_by_side(items, options)
  local columns, option_rows, metric_rows = { "" }, {}, {}
  for _, item in ipairs(items) do columns[#columns + 1] = item.name end
  for _, key in ipairs(M.differing(items, options.all)) do
    local row = { key }
    for i, item in ipairs(items) do row[i + 1] = shown(item.options[key]) end
    option_rows[#option_rows + 1] = row
  end
  local metric_columns = { "", items[1].name }
  for i = 2, #items do
    metric_columns[#metric_columns + 1] = items[i].name
    metric_columns[#metric_columns + 1] = "x"
  end
  for _, key in ipairs(M.metrics_of(items, options)) do
    local row, first = { key, items[1].metrics[key] }, items[1].metrics[key]
    for i = 2, #items do
      row[2 * i - 1], row[2 * i] = items[i].metrics[key], ratio(items[i].metrics[key], first)
    end
    metric_rows[#metric_rows + 1] = row
  end
  return { text_table.new { title = options.all and "Options" or "Options that differ", columns = columns, rows = option_rows },
    text_table.new { title = "Figures, and their ratio to the first", columns = metric_columns, rows = metric_rows } }
end

--- The figures of a wide table: those of these three that were measured.
local function few_of(items)
  local names = {}
  for _, name in ipairs { "median_time_ms", "avg_time_ms", "peak_memory_mb", "tokens_per_s" } do
    local has = false
    for _, item in ipairs(items) do has = has or item.metrics[name] ~= nil end
    -- Files of the suites have the mean only.
    if has and not (name == "avg_time_ms" and names[1] == "median_time_ms") then names[#names + 1] = name end
  end
  return names
end

--- Many results: a row per result.
local function as_rows(items, options)
  local names = M.differing(items, false)
  local metrics = M.metrics_of(items, { all = options.all, metrics = options.metrics or not options.all and few_of(items) or nil })
  local columns, rows = {}, {}
  for _, name in ipairs(names) do columns[#columns + 1] = name end
  columns[#columns + 1] = "status"
  for _, name in ipairs(metrics) do
    columns[#columns + 1] = name
    columns[#columns + 1] = "x"
  end
  for r, item in ipairs(items) do
    local row, n = {}, #names + 1
    for i, name in ipairs(names) do row[i] = shown(item.options[name]) end
    row[n] = item.status
    for i, name in ipairs(metrics) do
      row[n + 2 * i - 1], row[n + 2 * i] = item.metrics[name], r > 1 and ratio(item.metrics[name], items[1].metrics[name]) or nil
    end
    rows[r] = row
  end
  return { text_table.new { title = ("%d results: options that differ, figures, and their ratio to the first"):format(#items),
    columns = columns, rows = rows } }
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
  local varying, is_varying = {}, {}
  for _, folder in ipairs(folders) do
    for _, name in ipairs(M.differing(folder.items, false)) do
      if not is_varying[name] then
        is_varying[name] = true
        varying[#varying + 1] = name
      end
    end
  end
  table.sort(varying)
  local heads, order, matched = {}, {}, {}
  for f, folder in ipairs(folders) do
    heads[f] = { name = folder.name, options = {}, metrics = {} }
    for key, value in pairs(folder.items[1].options) do
      if not is_varying[key] then heads[f].options[key] = value end
    end
    for _, item in ipairs(folder.items) do
      local parts = {}
      for i, name in ipairs(varying) do parts[i] = ("%s=%s"):format(name, tostring(item.options[name])) end
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
  local items = {}
  for _, folder in ipairs(folders) do
    for _, item in ipairs(folder.items) do items[#items + 1] = item end
  end
  local names = options.metrics or not options.all and few_of(items) or nil
  for _, metric in ipairs(M.metrics_of(items, { all = options.all, metrics = names })) do
    local columns, rows = { "point" }, {}
    for f, folder in ipairs(folders) do
      columns[#columns + 1] = folder.name
      if f > 1 then columns[#columns + 1] = "x" end
    end
    for r, key in ipairs(order) do
      local first = matched[key][1]
      local row, c = { key }, 1
      for f = 1, #folders do
        local item = matched[key][f]
        local good = item and item.status == "ok"
        row[c + 1] = good and item.metrics[metric] or item and item.status or nil
        if f > 1 then
          row[c + 2] = good and first and ratio(item.metrics[metric], first.metrics[metric]) or nil
          c = c + 1
        end
        c = c + 1
      end
      rows[r] = row
    end
    tables[#tables + 1] = text_table.new { title = metric, columns = columns, rows = rows }
  end
  return tables
end

local Comparison = {}
Comparison.__index = Comparison
function Comparison:__tostring()
  local parts = {}
  for i, each in ipairs(self.tables) do
    parts[i] = #each.rows > 0 and tostring(each) or each.title .. "\n\n(none)"
  end
  return table.concat(parts, "\n\n")
end

--- Compares results.
-- @tparam {table,...} sources lists of items, each { name = …, items = { item, … } }: one per folder or file
-- @tparam[opt] table options all (also what agrees), metrics (names of figures)
-- @treturn Comparison prints as tables; `tables` and `items` are its fields
function M.analyze(sources, options)
  options = guard.check("ms.compare", options, { "all", "metrics", "only" }, 2)
  local items, folders = {}, 0
  for _, source in ipairs(sources) do
    if #source.items > 1 then folders = folders + 1 end
    for _, item in ipairs(source.items) do items[#items + 1] = item end
  end
  if #items == 0 then error("ms.compare: expected at least one result, got none", 2) end
  local tables
  if folders > 0 and #sources > 1 then
    tables = folders_side_by_side(sources, options)
  elseif #items <= 4 then
    tables = side_by_side(items, options)
  else
    tables = as_rows(items, options)
  end
  return setmetatable({ tables = tables, items = items }, Comparison)
end

return M
