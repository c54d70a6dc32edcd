--- Where memory goes: by owner at the peak, by stage of a run, by phase of a step.
local guard = require "moonshard.options_guard"
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local text_table = require "moonshard.text_table"

local M = {}

--- The values of a point's axes; the engine where there are none.
function M.label_of(results, point)
  local parts = lists.map(results.axes, function(axis) return tostring((point.asked or {})[axis] or point.options[axis]) end)
  return #parts > 0 and table.concat(parts, " ") or point.options.mode
end

--- Memory by owner at the moment of the peak, MiB; the owners of a column add up to its peak.
-- @tparam Runs results
-- @treturn Table one row per owner, one column per point with status ok; no rows where nothing was measured
-- @usage print(ms.analyze.memory(runs))
function M.analyze(results, options)
  guard.check("ms.analyze.memory", options, {}, 2)
  local points = results:select(function(point) return point.status == "ok" and point.result.memory ~= nil end)
  local columns, owners, row_of, peak, phases = { "MiB at the peak" }, {}, {}, { "peak" }, {}
  for c, point in ipairs(points) do
    local memory = point.result.memory
    local is_simulated = plot_points.modelled_part(point) == "all"
    columns[c + 1] = M.label_of(results, point) .. (is_simulated and " (modelled)" or "")
    for _, entry in ipairs(memory.breakdown or {}) do
      owners[#owners + 1] = entry.owner
      row_of[entry.owner] = row_of[entry.owner] or { entry.owner }
      row_of[entry.owner][c + 1] = entry.bytes / 2 ^ 20
    end
    peak[c + 1] = memory.peak_bytes and memory.peak_bytes / 2 ^ 20
    phases[c] = ("%s in %s"):format(columns[c + 1], memory.peak_phase or "?")
  end
  local rows = lists.map(native.analysis.owners_in_order(owners), function(owner) return row_of[owner] end)
  local note = "No point has a breakdown: run with profile = phases or more."
  if #rows > 0 then
    rows[#rows + 1], note = peak, "Peak: " .. table.concat(phases, ", ") .. "."
  end
  return text_table.new { title = "Memory by owner", unit = "MiB", columns = columns, rows = rows, notes = { note } }
end

--- Memory of every point at the stages of its run, GiB.
-- @tparam Runs results
-- @treturn Table one row per point, rank and stage
function M.stages(results)
  local rows = {}
  local function gib(bytes) return bytes and bytes / 2 ^ 30 end
  for _, point in ipairs(results.points) do
    for _, row in ipairs(point.result.memory_stages or {}) do
      rows[#rows + 1] = { M.label_of(results, point), row.stage, row.rank or 0, gib(row.allocated_bytes), gib(row.max_allocated_bytes),
        gib(row.reserved_bytes), gib(row.max_reserved_bytes), gib(row.rss_bytes) }
    end
  end
  return text_table.new { title = "Memory by stage, GiB", unit = "GiB", rows = rows,
    columns = { "point", "stage", "rank", "allocated", "max allocated", "reserved", "max reserved", "process" } }
end

return M
