--- Run folders with given figures, for specs of analysis: real files, written and read by the real code.
local ms = require "moonshard"
local native = package.loaded["moonshard.native"]

local M = {}

--- Writes a run folder.
-- @tparam string root folder to make it in
-- @tparam {string,...} axes
-- @tparam {table,...} points each { options, metrics, result (merged into the record), status, asked }
-- @treturn Runs as ms.load gives
function M.make(root, axes, points)
  local records = native.records
  local folder = records.create(root, "fake")
  local planned = {}
  for i, point in ipairs(points) do
    point.options.model = point.options.model or "llama3-tiny"
    point.options.batch_size = point.options.batch_size or 2
    planned[i] = { id = ("%016x"):format(i), file = ("p%d_result.json"):format(i), options = point.options, asked = point.asked or {} }
  end
  records.write_environment(folder, {})
  records.write_sweep(folder, { name = "fake", request = {}, axes = axes, points = planned })
  for i, point in ipairs(points) do
    local status = point.status or "ok"
    local record = { schema_version = 1, status = status, options = point.options, id = planned[i].id }
    if status == "ok" then record.metrics = point.metrics or {} else record.error = "memory: tried to allocate 5 bytes" end
    for key, value in pairs(point.result or {}) do record[key] = value end
    records.write_result(folder, planned[i].id, record)
    records.write_status(folder, planned[i].id, status)
  end
  records.write_index(folder)
  return ms.load(records.path(folder))
end

--- Figures of one point: time in ms, memory in MiB.
function M.metrics(ms_per_step, mib)
  return { median_time_ms = ms_per_step, avg_time_ms = ms_per_step, peak_memory_mb = mib, peak_memory_gb = mib / 1024,
    peak_memory_bytes = mib * 2 ^ 20, tokens_per_s = 1000 / ms_per_step }
end

return M
