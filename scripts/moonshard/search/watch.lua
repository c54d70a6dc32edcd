--- Steps of a point at work, from the lines that `log(step, { … })` writes into its log: "step 3: acc 0.5, loss 1.25".
local Watch = {}
Watch.__index = Watch
local M = {}

--- Follows a log that may not be there yet.
function M.new(path) return setmetatable({ path = path, at = 0, rest = "" }, Watch) end

--- Steps since the last call.
-- @treturn {table,...} each step (number) and values (numbers by name)
function Watch:poll()
  local file = io.open(self.path, "rb")
  if not file then return {} end
  file:seek("set", self.at)
  local text = file:read("*a") or ""
  file:close()
  self.at, text = self.at + #text, self.rest .. text
  local steps = {}
  -- The last line may be half written.
  local whole = text:match("^(.*\n)") or ""
  self.rest = text:sub(#whole + 1)
  for line in whole:gmatch("([^\n]*)\n") do
    local step, rest = line:match("^step (%-?[%d.e+]+): (.*)$")
    if tonumber(step) then
      local values = {}
      for name, value in (", " .. rest):gmatch(", ([^ ,]+) ([^,]+)") do values[name] = tonumber(value) end
      steps[#steps + 1] = { step = tonumber(step), values = values }
    end
  end
  return steps
end

return M
