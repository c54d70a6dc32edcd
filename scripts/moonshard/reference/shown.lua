--- How lists of the module and the record of ms.run look when they are printed: as tables. The values stay plain tables.
local lists = require "moonshard.lists"
local text_table = require "moonshard.text_table"

local M = {}

local function size(bytes) return bytes and text_table.with_unit(bytes, { " bytes", " KiB", " MiB", " GiB" }, 1024) end

local function number(value) return value and text_table.cell_text(value) end

local function short(text, length) return #text > length and text:sub(1, length - 3) .. "..." or text end

local function models(list)
  return { columns = { "model", "task", "parameters", "batch", "tokens", "" }, rows = lists.map(list, function(each)
    local parameters = text_table.with_unit(each.num_parameters, { "", " k", " M", " G" })
    return { each.name, each.task, parameters, each.batch_size, each.seq_length, each.doc }
  end) }
end

local function engines(list)
  return { columns = { "engine", "private", "also called", "" }, rows = lists.map(list, function(each)
    return { each.name, each.private and "yes" or "no", table.concat(each.aliases, ", "), each.doc }
  end) }
end

local function options(list)
  return { columns = { "option", "type", "default", "meaning" }, rows = lists.map(list, function(each)
    return { each.name, short(each.type, 40), tostring(each.default), each.doc }
  end) }
end

local function matches(list)
  return { columns = { "name", "meaning" }, rows = lists.map(list, function(each) return { each.name, each.text } end) }
end

local function spread(time, key)
  local found = time and time[key]
  return type(found) == "table" and found.iqr and ("IQR %.3g ms, %d steps"):format(found.iqr, found.count) or nil
end

-- The figures that one looks at first; ms.fields() explains all of a record's.
local function record(result)
  local metrics, asked = result.metrics or {}, result.options or {}
  local rows = {
    { "status", result.status, result.error },
    { "model", asked.model, asked.batch_size and ("batch %d, %d tokens"):format(asked.batch_size, asked.seq_length) },
    { "engine", asked.mode, asked.mode ~= "none" and asked.clipping or nil },
    { "step", metrics.median_time_ms and ("%.4g ms"):format(metrics.median_time_ms), spread(result.time, "step_ms")
      or metrics.iqr_time_ms and ("IQR %.3g ms"):format(metrics.iqr_time_ms) },
    { "tokens/s", number(metrics.tokens_per_s) },
    { "peak memory", size(metrics.peak_memory_bytes) },
    { "loss", number(metrics.final_loss) },
    { "epsilon", number(metrics.epsilon) or result.status == "ok" and "not private" or nil },
  }
  return { columns = { "", "value", "" },
    rows = lists.map(lists.select(rows, function(row) return row[2] ~= nil end), function(row) return { row[1], row[2], row[3] or "" } end),
    notes = { ".metrics, .time, .memory, .options … have the rest; ms.fields() explains them." } }
end

local makers = { models = models, engines = engines, options = options, matches = matches, run = record, last_run = record }
local metas = {}

--- What a printed list shows, as a table object; nil for any other value.
function M.table_of(value)
  local meta = debug.getmetatable(value)
  local make = type(meta) == "table" and rawget(meta, "__shown_as")
  return make and text_table.new(make(value)) or nil
end

for name, make in pairs(makers) do
  metas[name] = { __shown_as = make, __tostring = function(value) return tostring(M.table_of(value)) end }
end

--- A list of { name, text } that prints as a table.
function M.matches(list) return setmetatable(list, metas.matches) end

--- A record, or a point of a run folder, that prints as a table.
function M.as_record(point) return setmetatable(point, metas.run) end

--- A metatable for points that read themselves, which prints them as tables.
-- @tparam function index as __index
function M.record_meta(index) return { __index = index, __shown_as = metas.run.__shown_as, __tostring = metas.run.__tostring } end

--- A function that gives what another gives, but printable.
function M.wrapped(name, fn)
  return function(...)
    local ok, result = pcall(fn, ...)
    if ok then return setmetatable(result, metas[name]) end
    -- The line is the caller's, not one of this file.
    if type(result) == "string" then error(result:gsub("^[^\n]-shown%.lua:%d+: ", ""), 2) end
    error(result, 0)
  end
end

return M
