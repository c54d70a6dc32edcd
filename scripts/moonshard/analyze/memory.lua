--- Where memory goes: by owner at the peak, by stage of a run, by phase of a step.
local guard = require "moonshard.options_guard"
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

local M = {}

local function label_of(results, point)
  local parts = {}
  for i, axis in ipairs(results.axes) do parts[i] = tostring((point.asked or {})[axis] or point.options[axis]) end
  return #parts > 0 and table.concat(parts, " ") or point.options.mode
end
M.label_of = label_of

--- Owners that any point names, in the order of a stack.
local function owners_of(points)
  local names = {}
  for _, point in ipairs(points) do
    for _, row in ipairs(point.result.memory.breakdown or {}) do names[#names + 1] = row.owner end
  end
  return native.analysis.owners_in_order(names)
end

--- Memory by owner at the moment of the peak, MiB; the owners of a column add up to its peak.
-- @tparam Runs results
-- @treturn Table one row per owner, one column per point with status ok; no rows where nothing was measured
-- @usage print(ms.analyze.memory(runs))
function M.analyze(results, options)
  guard.check("ms.analyze.memory", options, {}, 2)
  local points = results:select(function(point) return point.status == "ok" and point.result.memory ~= nil end)
  local columns, rows = { "MiB at the peak" }, {}
  for _, point in ipairs(points) do columns[#columns + 1] = label_of(results, point) end
  for _, owner in ipairs(owners_of(points)) do
    local row = { owner }
    for c, point in ipairs(points) do
      for _, entry in ipairs(point.result.memory.breakdown or {}) do
        if entry.owner == owner then row[c + 1] = entry.bytes / 2 ^ 20 end
      end
    end
    rows[#rows + 1] = row
  end
  if #rows == 0 then
    return text_table.new { title = "Memory by owner", columns = columns, rows = rows,
      notes = { "No point has a breakdown: run with profile = phases or more." } }
  end
  local peak, phases = { "peak" }, {}
  for c, point in ipairs(points) do
    peak[c + 1] = point.result.memory.peak_bytes and point.result.memory.peak_bytes / 2 ^ 20
    phases[c] = ("%s in %s"):format(columns[c + 1], point.result.memory.peak_phase or "?")
  end
  rows[#rows + 1] = peak
  return text_table.new { title = "Memory by owner", columns = columns, rows = rows,
    notes = { "Peak: " .. table.concat(phases, ", ") .. "." } }
end

--- Memory of every point at the stages of its run, GiB.
-- @tparam Runs results
-- @treturn Table one row per point, rank and stage
function M.stages(results)
  local rows = {}
  local function gib(bytes) return bytes and bytes / 2 ^ 30 end
  for _, point in ipairs(results.points) do
    for _, row in ipairs(point.result.memory_stages or {}) do
      rows[#rows + 1] = { label_of(results, point), row.stage, row.rank or 0, gib(row.allocated_bytes), gib(row.max_allocated_bytes),
        gib(row.reserved_bytes), gib(row.max_reserved_bytes), gib(row.rss_bytes) }
    end
  end
  return text_table.new { title = "Memory by stage, GiB", rows = rows,
    columns = { "point", "stage", "rank", "allocated", "max allocated", "reserved", "max reserved", "process" } }
end

return M
