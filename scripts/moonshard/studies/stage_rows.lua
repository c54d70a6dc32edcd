--- Memory at the stages of a run in the words of the FSDP tutorial (document 003): one row per stage, as its program prints it.
local M = {}

--- The longest decimal that names the number, as Python prints floats: 9.00048828125, 9.0.
function M.python_number(value)
  local text
  for digits = 1, 17 do
    text = ("%." .. digits .. "g"):format(value)
    if tonumber(text) == value then break end
  end
  return text:match("^-?%d+$") and text .. ".0" or text
end

--- One row as text: {'stage': 'after warmup', 'rank': 0, 'log_key': 'memory', 'cuda_memory_allocated_GB': …}.
-- GB are 2^30 bytes, as in the tutorial. On the CPU the keys are cpu_memory_…
-- @tparam table row of a record's memory_stages
-- @tparam string device "cuda" or "cpu"
function M.text(row, device)
  local prefix = device:match("^cuda") and "cuda" or "cpu"
  local parts = { ("'stage': '%s'"):format(row.stage), ("'rank': %d"):format(row.rank or 0), "'log_key': 'memory'" }
  local function add(key, bytes)
    if bytes then parts[#parts + 1] = ("'%s': %s"):format(key, M.python_number(bytes / 2 ^ 30)) end
  end
  add(prefix .. "_memory_allocated_GB", row.allocated_bytes)
  add(prefix .. "_max_memory_allocated_GB", row.max_allocated_bytes)
  add(prefix .. "_memory_reserved_GB", row.reserved_bytes)
  add(prefix .. "_max_memory_reserved_GB", row.max_reserved_bytes)
  add("cpu_memory_rss_GB", row.rss_bytes)
  return "{" .. table.concat(parts, ", ") .. "}"
end

local of_tutorial = { ["after data"] = true, ["after model creation"] = true, ["after wrapping"] = true, ["after warmup"] = true }

--- Rows of a point as lines; nil where none were recorded.
-- @tparam[opt] boolean all also the stages that the tutorial does not have
function M.lines(point, all)
  local lines = {}
  for _, row in ipairs(point.result.memory_stages or {}) do
    if all or of_tutorial[row.stage] then lines[#lines + 1] = M.text(row, point.options.device) end
  end
  return #lines > 0 and table.concat(lines, "\n") or nil
end

--- The row of a stage on rank 0; nil where it was not recorded.
function M.find(point, stage)
  for _, row in ipairs(point.result.memory_stages or {}) do
    if row.stage == stage and (row.rank or 0) == 0 then return row end
  end
end

--- MiB of a figure of that row.
-- @tparam[opt="allocated_bytes"] string key
function M.mib(point, stage, key)
  local row = M.find(point, stage)
  local bytes = row and row[key or "allocated_bytes"]
  return bytes and bytes / 2 ^ 20
end

--- MiB allocated at a stage on rank 0; nil where it was not recorded.
function M.allocated_mib(point, stage) return M.mib(point, stage) end

return M
