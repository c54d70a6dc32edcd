--- Profiles of a machine with several ranks at once: what they take from each other, and their collectives.
local launch = require("moonshard.native").launch
local native = require "moonshard.native"
local shell = require "moonshard.shell"

local M = {}
local most_ranks_of_a_core = 4
local worker = debug.getinfo(1, "S").source:match "^@(.*)%.lua$" .. "_worker.lua"

local function words_of(program, more, what, device, seconds, file)
  local words = { program, "run" }
  for _, word in ipairs(more) do words[#words + 1] = word end
  for _, word in ipairs { worker, what, device, ("%g"):format(seconds), file } do words[#words + 1] = word end
  return words
end

--- Profiles of as many processes at once, of which the first counts.
local function measure_at_once(program, device, seconds, ranks, files)
  local children = {}
  for i = 1, ranks do
    children[i] = launch.start(words_of(program, {}, "profile", device, seconds, files[i]), files[i] .. ".log",
      { variables = shell.thread_variables(ranks) })
  end
  local failed
  for i, child in ipairs(children) do
    local ended
    repeat
      ended = launch.poll(child)
      if not ended then os.execute "sleep 0.1" end
    until ended
    if ended.exit_code ~= 0 then failed = failed or shell.last_words(shell.read(files[i] .. ".log") or "", ended.text) end
  end
  if failed then error("plan: calibration of ranks: " .. failed, 0) end
  return native.records.read_json(files[1])
end

--- Times of collectives between ranks of this machine.
local function collectives_of(program, device, seconds, ranks, file)
  local words = words_of(program, { "--nproc", tostring(ranks) }, "collectives", device, math.max(2, seconds / 3), file)
  local said, good, ended = shell.run(words, file .. ".log", { variables = shell.thread_variables(ranks) })
  if not good then error("plan: calibration of collectives: " .. shell.last_words(said, ended), 0) end
  return native.records.read_json(file)
end

--- A machine's profile with so many ranks. Ranks of a CPU share its cores and its memory, so that all of them are measured at once; GPUs
-- are each a device of its own, of which one is measured.
-- @treturn table the profile, with the collectives between these ranks
function M.measure(device, seconds, ranks)
  local own = native.plan.devices(device)
  local most = own.count * (own.is_shared and most_ranks_of_a_core or 1)
  if ranks > most then
    error(("plan: calibration: expected at most %d ranks (this machine has %d %s), got %d"):format(most, own.count,
      own.is_shared and "cores" or "GPUs", ranks), 0)
  end
  local program = launch.program "moonshard"
  local base, files, made = os.tmpname(), {}, {}
  for i = 1, ranks + 1 do
    files[i] = ("%s.%d"):format(base, i)
    made[#made + 1], made[#made + 2] = files[i], files[i] .. ".log"
  end
  made[#made + 1] = base
  io.stderr:write(("moonshard: calibration: %s for %g s, then collectives of %d ranks\n"):format(
    own.is_shared and ("%d ranks at once"):format(ranks) or "one rank", seconds, ranks))
  local good, result = pcall(function()
    local profile = measure_at_once(program, device, seconds, own.is_shared and ranks or 1, files)
    profile.collectives = collectives_of(program, device, seconds, ranks, files[ranks + 1])
    return profile
  end)
  for _, path in ipairs(made) do os.remove(path) end
  if not good then error(result, 0) end
  return result
end

return M
