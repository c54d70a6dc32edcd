--- Outcome of a point: its record, or the reason why there is none; and which points cannot fit either.
local folders = require "moonshard.sweep.folder"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local pretty = require "moonshard.pretty"
local shell = require "moonshard.shell"

local M = {}

--- Axes along which a point needs more memory, unless the sweep names its own.
M.growing = { "batch_size", "seq_length", "num_layers", "hidden_dim", "image_size" }

local tail_bytes, tail_lines, screen_lines = 4000, 20, 5

local function last_lines(text, count, separator)
  local lines = lists.matches(text, "[^\n]+")
  return table.concat(lines, separator, math.max(1, #lines - count + 1))
end

--- The last lines of a point's log, without control characters.
function M.log_tail(path, id, lines)
  local text = native.records.log_tail(path, id, tail_bytes):gsub("[%z\1-\8\11-\31\127]", "?")
  return last_lines(text, lines or tail_lines, "\n")
end

--- How many processes the kernel has ended for want of memory since the machine started.
function M.oom_kills() return tonumber((shell.read("/proc/vmstat") or ""):match("oom_kill (%d+)")) or 0 end

--- Status and reason of a point whose process ended without a good record.
local function reason(ended, job, tail)
  local last = tail:match("([^\n]+)$") or "no output"
  if ended.ended_by == "timeout" then
    return "timeout", ("timeout: it ran longer than %g s and was ended; last words: %s"):format(job.options.timeout, last)
  end
  if ended.ended_by == "caller" then return "interrupted", "interrupted: Ctrl-C ended it" end
  if ended.signal == 9 and M.oom_kills() > (ended.oom_kills_before or math.huge) then
    return "oom", "host memory: the kernel ended the process for want of memory; last words: " .. last
  end
  return "failed", ("the process ended with %s; last words: %s"):format(ended.text, last)
end

--- The suites' own file of a good point.
function M.write_seed(job, point, record)
  local records = native.records
  local name, content
  if job.sweep.seed_result then
    local ok
    ok, name, content = pcall(job.sweep.seed_result, record, point)
    if not ok then
      job.bar:say("warning: seed_result: " .. tostring(name))
      return
    end
    if name == nil then return end
  elseif job.sweep.own_run then
    return -- the suites have no such result
  else
    name, content = point.file, records.seed_result(job.folder.path, point.id)
    if point.asked.mode then content.mode = point.asked.mode end
  end
  local ok, message = pcall(function() records.write_file(job.folder.writer, name, records.to_json(content)) end)
  if not ok then M.note_unwritten(job, "seed_result", message) end
end

--- Writes a record that no process wrote.
function M.write_failure(job, point, status, why, extra)
  native.records.write_result(job.folder.writer, point.id, lists.merged(extra,
    { schema_version = 1, id = point.id, status = status, options = point.options, error = why }))
end

--- Whether a point may do better when it runs again.
function M.has_failed(record) return record.status == "failed" or record.status == "timeout" end

--- Takes stock of a point whose process has ended: the record says, or the way it ended does.
-- @treturn table the point as records.load_point gives it
function M.settle(job, point, ended, attempt)
  local records, path = native.records, job.folder.path
  local record = records.load_point(path, point.id)
  if record.status ~= "ok" then
    local tail = M.log_tail(path, point.id)
    local has_record = record.has_record and record.status ~= "unreadable"
    if has_record and ended.ended_by == "itself" then
      records.annotate(job.folder.writer, point.id, { log_tail = tail, attempts = attempt })
    else
      local status, why = reason(ended, job, tail)
      M.write_failure(job, point, status, why, { log_tail = tail, attempts = attempt })
    end
    record = records.load_point(path, point.id)
  end
  M.finish(job, point, record)
  return record
end

--- Says that a file could not be written. The sweep goes on, but the program does not end with exit code 0.
function M.note_unwritten(job, what, message)
  job.bar:say(("warning: %s: %s"):format(what, tostring(message)))
  native.launch.note_unwritten()
end

--- Status file, suites' file and index of a point that has its record.
function M.finish(job, point, record)
  if record.status == "ok" then M.write_seed(job, point, record) end
  native.records.write_status(job.folder.writer, point.id, record.status)
  local ok, message = pcall(native.records.update_index, job.folder.writer, point.id)
  if not ok then M.note_unwritten(job, "index", message) end
  job.folder.known[point.id] = folders.state(record.status, record.has_record)
end

--- What would have saved memory, from the breakdown of a record that ran out of it: lines, the most first; none where it is not known.
-- @tparam table result a record
-- @tparam[opt=3] number most
-- @treturn {string,...}
function M.savings(result, most)
  local lines = {}
  for _, row in ipairs(type(result.savings) == "table" and result.savings or {}) do
    if #lines == (most or 3) then break end
    if type(row) == "table" and type(row.bytes) == "number" then
      lines[#lines + 1] = ("%s saves %s: %s"):format(tostring(row.change), pretty.size(row.bytes), tostring(row.reason))
    end
  end
  return lines
end

--- One line on a good record: figures of the script's own function, or time and memory.
local function describe_good(record)
  local metrics, parts = record.metrics, {}
  for _, name in ipairs(M.own_metrics(record)) do
    local value = metrics[name]
    parts[#parts + 1] = ("%s %s"):format(name, type(value) == "number" and ("%.6g"):format(value) or tostring(value))
  end
  if #parts > 0 then return table.concat(parts, ", ") end
  if metrics.median_time_ms then parts[1] = ("%.1f ms"):format(metrics.median_time_ms) end
  if metrics.peak_memory_mb then parts[#parts + 1] = ("peak %.1f MiB"):format(metrics.peak_memory_mb) end
  return #parts > 0 and table.concat(parts, ", ") or "done"
end

--- Names of the metrics that a script's own function gave.
function M.own_metrics(record)
  local names = record.own_metrics or type(record.result) == "table" and record.result.own_metrics
  return type(names) == "table" and lists.select(names, function(name) return type(name) == "string" end) or {}
end

--- One line on a record, and the end of its log where that says more.
function M.describe(record)
  if record.status == "ok" then
    return describe_good(record)
  end
  local result, text = record.result, record.status .. ": " .. record.error:match("^[^\n]*")
  local details = {}
  if type(result.phase) == "string" then details[#details + 1] = "in " .. result.phase end
  if type(result.bytes_asked) == "number" and result.bytes_asked > 0 then
    details[#details + 1] = "asked for " .. pretty.size(result.bytes_asked)
  end
  if type(result.bytes_free) == "number" and result.bytes_free >= 0 then
    details[#details + 1] = pretty.size(result.bytes_free) .. " free"
  end
  if #details > 0 then text = text .. " (" .. table.concat(details, ", ") .. ")" end
  for _, line in ipairs(M.savings(result)) do text = text .. "\n    -> " .. line end
  if M.has_failed(record) and type(result.log_tail) == "string" and result.log_tail ~= "" then
    text = text .. "\n    | " .. last_lines(result.log_tail, screen_lines, "\n    | ")
  end
  return text
end

--- The axes along which a point is larger than another, and alike in the others; nil where it is not.
local function larger_in(ours, theirs, axes)
  local larger = {}
  for _, axis in ipairs(axes) do
    if ours[axis] ~= theirs[axis] then
      if type(ours[axis]) ~= "number" or type(theirs[axis]) ~= "number" or ours[axis] < theirs[axis] then return nil end
      larger[#larger + 1] = axis
    end
  end
  return #larger > 0 and table.concat(larger, " and ") or nil
end

--- Growing axes of a job's sweep, and a text of all others' values: points of one text are compared.
local function family_of(job, options)
  local grows, growing, fixed = lists.set(job.sweep.growing), {}, {}
  for _, axis in ipairs(job.sweep.axes) do
    if grows[axis] then growing[#growing + 1] = axis else fixed[#fixed + 1] = type(options[axis]) .. tostring(options[axis]) end
  end
  return growing, table.concat(fixed, "\0")
end

--- Remembers a point that ran out of memory.
function M.note_oom(job, point)
  local options = point.options
  local growing, family = family_of(job, options)
  local sizes = {}
  for _, axis in ipairs(growing) do sizes[axis] = options[axis] end
  job.out_of_memory[family] = job.out_of_memory[family] or {}
  table.insert(job.out_of_memory[family], { label = point.label, sizes = sizes })
end

--- Why a point is predicted to run out of memory; nil when it is not.
-- @tparam table job its out_of_memory holds the points that did
function M.predicted_oom(job, point)
  if next(job.out_of_memory) == nil then return nil end
  local options = point.options
  local growing, family = family_of(job, options)
  for _, failed in ipairs(job.out_of_memory[family] or {}) do
    local axes = larger_in(options, failed.sizes, growing)
    if axes then
      return ("predicted-oom: %s ran out of memory, and this point is larger in %s; --all runs it"):format(failed.label, axes)
    end
  end
end

return M
