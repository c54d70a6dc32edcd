--- Analyses of traces as text.
local lists = require "moonshard.lists"
local text_table = require "moonshard.text_table"

local M = {}

-- Templates of kernels fill a screen: their head says which they are.
local function short(name, width)
  name = name:gsub("^void ", ""):gsub("%(anonymous namespace%)::", "")
  if #name <= width then return name end
  return name:sub(1, width - 1) .. "…"
end

local function title(result)
  local words = { result.modelled and "a modelled step" or nil, result.what, result.device, result.rank and result.world > 1 and
    ("rank %d of %d"):format(result.rank, result.world) or nil }
  local parts = {}
  for i = 1, 4 do if words[i] then parts[#parts + 1] = words[i] end end
  return #parts > 0 and table.concat(parts, ", ") or result.file
end

local function step_words(result) return result.steps > 1 and (", step %d of %d"):format(result.step, result.steps) or "" end

local function parts(heading, rows, top, width)
  local shown, rest_ms, rest_percent, rest = {}, 0, 0, 0
  for i, row in ipairs(rows) do
    if i <= top then
      local cells = { short(row.name, width), row.ms, row.percent }
      if row.kind then table.insert(cells, 2, row.kind) end
      shown[#shown + 1] = cells
    else
      rest_ms, rest_percent, rest = rest_ms + row.ms, rest_percent + row.percent, rest + 1
    end
  end
  if rest > 0 then
    local cells = { ("%d more"):format(rest), rest_ms, rest_percent }
    if rows[1].kind then table.insert(cells, 2, "") end
    shown[#shown + 1] = cells
  end
  local columns = { heading, "ms", "%" }
  if rows[1] and rows[1].kind then table.insert(columns, 2, "kind") end
  return text_table.format(columns, shown)
end

local function with_notes(lines, notes)
  for _, note in ipairs(notes or {}) do lines[#lines + 1] = "note: " .. note end
  return table.concat(lines, "\n")
end

--- A critical path as tables.
function M.path(result, top)
  top = top or 12
  local head = ("critical path of %s%s: %.2f ms"):format(title(result), step_words(result), result.step_ms)
  if result.measured_ms then head = head .. (" (median of the measured steps, without a trace: %.2f ms)"):format(result.measured_ms) end
  if result.graph_kernels > 0 then head = head .. ("; %d kernels came from CUDA graphs"):format(result.graph_kernels) end
  local lines = { head, "", parts("kind", result.kinds, 9, 40), "", parts("phase", result.phases, 12, 40) }
  if #result.layers > 1 then lists.extend(lines, { "", parts("layer", result.layers, top, 60) }) end
  lists.extend(lines, { "", parts("kernel, operator or gap", result.names, top, 90) })
  return with_notes(lines, result.notes)
end

--- A prediction as text.
function M.what_if(result)
  local lines = { ("%s%s: %.2f ms -> %.2f ms (%+.1f %%)"):format(title(result), step_words(result), result.step_ms, result.predicted_ms,
    result.change_percent) }
  if result.measured_ms then
    lines[#lines + 1] = ("measured without a trace, median: %.2f ms -> %.2f ms (%+.1f %%)"):format(result.measured_ms,
      result.predicted_measured_ms, 100 * (result.predicted_measured_ms / result.measured_ms - 1))
    if result.host_scale < 0.95 then
      lines[#lines + 1] = ("(the trace made the host %.2f times slower: with %.0f %% of its time the graph gives the measured step)")
        :format(1 / result.host_scale, 100 * result.host_scale)
    end
  end
  lines[#lines + 1] = ("left out: %.2f ms of the device, %.2f ms of the host"):format(result.removed_device_ms, result.removed_host_ms)
  lists.extend(lines, { "", parts("critical path then", result.kinds, 9, 40) })
  return with_notes(lines, result.notes)
end

local function signed(value) return ("%+.3f"):format(value) end

local function changes(heading, rows, top, width)
  local shown = {}
  for i = 1, math.min(top, #rows) do
    local row = rows[i]
    local function count(value) return value == math.floor(value) and value or ("%.1f"):format(value) end
    local cells = { short(row.name, width), count(row.before_count), count(row.after_count), row.before_ms, row.after_ms,
      signed(row.change_ms), row.change_percent and ("%+.1f"):format(row.change_percent) or (row.after_ms > 0 and "new" or "-") }
    shown[#shown + 1] = cells
  end
  local text = text_table.format({ heading, "count before", "count after", "ms before", "ms after", "change", "%" }, shown)
  return #rows > top and ("%s\n%d more"):format(text, #rows - top) or text
end

--- A difference as tables.
function M.diff(result, top)
  top = top or 15
  local function side(name)
    local own = result[name]
    return ("%s: %s, step %.2f ms%s%s"):format(name, title(own), own.step_ms,
      own.device_ms > 0 and (", device %.2f ms"):format(own.device_ms) or "",
      own.steps > 1 and (", mean of %d steps"):format(own.steps) or "")
  end
  local lines = { side "before", side "after", "", changes("phase", result.phases, 12, 40) }
  if #result.layers > 1 then lists.extend(lines, { "", changes("layer", result.layers, top, 60) }) end
  lists.extend(lines, { "", changes("kernel or operator", result.names, top, 80) })
  return table.concat(lines, "\n")
end

return M
