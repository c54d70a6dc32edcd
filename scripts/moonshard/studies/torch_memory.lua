--- The tutorial's program (document 003) in PyTorch on this machine: memory of one rank, measured by scripts/studies/fsdp_linear_torch.py.
local native = require "moonshard.native"
local plot_points = require "moonshard.plot_points"
local shell = require "moonshard.shell"

local M = {}

local failed = {}  -- run folders where it was tried in vain: once is enough

--- Whether PyTorch is asked: as the user says, else at full size on a GPU, where the figures can be the tutorial's.
-- @tparam[opt] boolean wish
function M.is_wanted(runs, wish, gpus)
  if wish ~= nil then return wish end
  local point = runs:select("ok")[1]
  return gpus > 0 and point ~= nil and point.options.model == "linear" and point.options.device:match("^cuda") ~= nil
end

--- Rows of the program; kept in torch.json of the run folder, and read from there the next time.
-- @tparam Runs runs
-- @tparam[opt] boolean wish the user's
-- @tparam number gpus of this machine
-- @treturn {table,...} parallel, stage, allocated_bytes, max_allocated_bytes, reserved_bytes, max_reserved_bytes; nil where there are none
function M.rows(runs, wish, gpus)
  local file = runs.path .. "/torch.json"
  local known, rows = pcall(native.files.read_json, file)
  if known and type(rows) == "table" then return rows end
  if failed[runs.path] or not M.is_wanted(runs, wish, gpus) then return nil end
  local point = runs:select("ok")[1]
  local options = point and point.options or {}
  local log = runs.path .. "/torch.log"
  print("measuring the tutorial's program in PyTorch …")
  local said, good, ended = shell.run({ "/usr/bin/env", os.getenv("MOONSHARD_PYTHON") or "python3",
    native.launch.shared_files() .. "/scripts/studies/fsdp_linear_torch.py", "--ranks", tostring(point and plot_points.ranks(point) or 8),
    "--batch_size", tostring(options.batch_size or 8192), "--width", tostring(options.hidden_dim or 16384),
    "--layers", tostring(options.num_layers or 8), "--output", file }, log)
  known, rows = pcall(native.files.read_json, file)
  if good and known and type(rows) == "table" then return rows end
  failed[runs.path] = true
  print(("PyTorch was not measured: %s (%s)"):format(shell.last_words(said, ended), log))
end

return M
