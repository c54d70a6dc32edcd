--- Memory at the stages of a run in the words of the FSDP tutorial (document 003): one row per stage, as its program prints it.
local M = {}

--- The longest decimal that names the number, as Python prints floats: 9.00048828125, 9.0.
local function python_number(value)
  local text = ("%.17g"):format(value)
  for digits = 1, 17 do
    local short = ("%." .. digits .. "g"):format(value)
    if tonumber(short) == value then
      text = short
      break
    end
  end
  if text:match("^-?%d+$") then text = text .. ".0" end
  return text
end
M.python_number = python_number

--- One row as text: {'stage': 'after warmup', 'rank': 0, 'log_key': 'memory', 'cuda_memory_allocated_GB': …}.
-- GB are 2^30 bytes, as in the tutorial. On the CPU the keys are cpu_memory_…
-- @tparam table row of a record's memory_stages
-- @tparam string device "cuda" or "cpu"
-- @treturn string
function M.text(row, device)
  local prefix = device:match("^cuda") and "cuda" or "cpu"
  local parts = { ("'stage': '%s'"):format(row.stage), ("'rank': %d"):format(row.rank or 0), "'log_key': 'memory'" }
  local function add(key, bytes)
    if bytes then parts[#parts + 1] = ("'%s': %s"):format(key, python_number(bytes / 2 ^ 30)) end
  end
  add(prefix .. "_memory_allocated_GB", row.allocated_bytes)
  add(prefix .. "_max_memory_allocated_GB", row.max_allocated_bytes)
  add(prefix .. "_memory_reserved_GB", row.reserved_bytes)
  add(prefix .. "_max_memory_reserved_GB", row.max_reserved_bytes)
  add("cpu_memory_rss_GB", row.rss_bytes)
  return "{" .. table.concat(parts, ", ") .. "}"
end

local of_tutorial = { ["after data"] = true, ["after model creation"] = true, ["after warmup"] = true }

--- Rows of a point as lines; nil where none were recorded.
-- @tparam table point
-- @tparam[opt] boolean all also the stages that the tutorial does not have
function M.lines(point, all)
  local lines = {}
  for _, row in ipairs(point.result.memory_stages or {}) do
    if all or of_tutorial[row.stage] then lines[#lines + 1] = M.text(row, point.options.device) end
  end
  return #lines > 0 and table.concat(lines, "\n") or nil
end

--- Allocated bytes at a stage on rank 0; nil where it was not recorded.
function M.allocated(point, stage)
  for _, row in ipairs(point.result.memory_stages or {}) do
    if row.stage == stage and (row.rank or 0) == 0 then return row.allocated_bytes end
  end
end

return M
