--- Shared by the sweep specs: sweeps in a folder of their own, started in the background, killed, looked at.
local base = require "tests.support.support"

local M = setmetatable({}, { __index = base })

M.tiny = [[model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1, batch_size = 4, iters = 1, warmup = 0, threads = 1]]

local Place = {}
Place.__index = Place

--- A folder with a script; the script's text may say OUT for the folder of runs and TINY for a small experiment.
function M.place() return setmetatable({ path = base.temporary_folder(), program = base.program() }, Place) end

function Place:remove() base.remove(self.path) end

function Place:script(text)
  text = text:gsub("OUT", self.path .. "/results"):gsub("TINY", (M.tiny:gsub("%%", "%%%%")))
  base.write(self.path .. "/sweep.lua", 'local ms = require "moonshard"\n' .. text)
end

--- Runs `moonshard WORDS` to its end in the folder.
function Place:run(words, options)
  options = options or {}
  options.folder = self.path
  return base.run(("exec %s %s"):format(base.shell_quoted(self.program), words), options)
end

--- Starts `moonshard WORDS` in the background. Output goes to the files out and err. Returns its process id.
function Place:start(words, variables)
  local set = ""
  for name, value in pairs(variables or {}) do set = set .. ("export %s=%s; "):format(name, base.shell_quoted(value)) end
  -- A shell's background process ignores Ctrl-C; this one must not.
  os.execute(("cd %s && { (%sexec setsid env --default-signal=INT %s %s) >out 2>err & echo $! >pid; }"):format(self.path, set,
    base.shell_quoted(self.program), words))
  return tonumber((base.read(self.path .. "/pid")))
end

function M.is_alive(pid)
  local state = (base.read(("/proc/%d/stat"):format(pid)) or ""):match("%) (%a)")
  return state ~= nil and state ~= "Z"
end

function M.kill(pid, signal) os.execute(("kill -%s %d 2>/dev/null"):format(signal or "KILL", pid)) end

--- Waits for a background process to end; returns whether it did.
function M.wait_end(pid, seconds) return base.wait_for(function() return not M.is_alive(pid) end, seconds) end

--- The run folder in results; nil when there is none yet.
function Place:run_path()
  local names = base.list(self.path .. "/results")
  return names[1] and self.path .. "/results/" .. names[1]
end

--- Processes of this folder's points: all that have its path on their command line, but not the parent.
function Place:children(parent)
  local ids = {}
  for _, id in ipairs(base.processes_with(self.path .. "/results")) do
    if id ~= parent then ids[#ids + 1] = id end
  end
  return ids
end

--- Result files by point id.
function Place:results()
  local results, path = {}, self:run_path()
  for _, id in ipairs(path and base.list(path .. "/points") or {}) do
    results[id] = base.read(("%s/points/%s/result.json"):format(path, id))
  end
  return results
end

function Place:status(id) return (base.read(("%s/points/%s/status"):format(self:run_path(), id)) or ""):match("%a+") end

return M
