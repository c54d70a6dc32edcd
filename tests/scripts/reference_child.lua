--- Runs the examples of the reference one after another and writes what each printed to said.txt: "\1NAME\n", then its lines.
-- Usage: moonshard run reference_child.lua [NAME]
local examples = require "moonshard.reference.examples"
local only = ...
local said

local function keep(...)
  local parts = {}
  for i = 1, select("#", ...) do parts[i] = tostring((select(i, ...))) end
  said[#said + 1] = table.concat(parts, "\t") .. "\n"
end

local names = {}
for name in pairs(examples) do
  if name ~= "prelude" and (not only or name == only) then names[#names + 1] = name end
end
table.sort(names)

local shared = "ms, model, data, trainer, t, runs"
local values = { assert(load(examples.prelude .. "\nreturn " .. shared, "=prelude"))() }
local file = assert(io.open("said.txt", "w"))
for _, name in ipairs(names) do
  said = {}
  local env = setmetatable({ print = keep }, { __index = _G })
  local chunk = assert(load(("local %s = ...\n%s"):format(shared, examples[name]), "=" .. name, "t", env))
  local ok, problem = pcall(chunk, unpack(values))
  if not ok then said[#said + 1] = ("error: %s\n"):format(tostring(problem)) end
  file:write("\1", name, "\n", table.concat(said))
end
file:close()
