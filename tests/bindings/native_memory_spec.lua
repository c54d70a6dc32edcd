--- Handles that a script drops: the tensors and files behind them go in time, without a call of the collector.
local support = require "tests.support.support"
local ms = require "moonshard"

local function held() return ms.memory().cpu_allocated_bytes end

describe("dropped handles", function()
  -- Each has 2 MiB and a handle of some bytes: to Lua the thousand are nothing.
  it("of a thousand models stay below 128 MiB", function()
    collectgarbage()
    local before, most = held(), 0
    for _ = 1, 1000 do
      ms.model("linear-tiny", { device = "cpu", hidden_dim = 512, num_layers = 2 })
      most = math.max(most, held() - before)
    end
    assert.is_true(most > 2 * 2 ^ 20, most)
    assert.is_true(most < 128 * 2 ^ 20, most)
  end)

  it("of weight files are closed before descriptors run out", function()
    local folder = support.temporary_folder()
    ms.weights.save(folder .. "/a.safetensors", { x = ms.zeros { 2 } })
    support.write(folder .. "/script.lua", ([[
      local ms = require "moonshard"
      for _ = 1, 300 do ms.weights.open("%s/a.safetensors") end
      local kept = {}
      local ok, message = pcall(function() for i = 1, 300 do kept[i] = ms.weights.open("%s/a.safetensors") end end)
      print("all opened", ok, message)]]):format(folder, folder))
    local result = support.run(("ulimit -n 100; %s run %s/script.lua"):format(support.shell_quoted(support.program()), folder))
    support.remove(folder)
    assert.matches("^all opened\tfalse", result.out, 1, result.err)  -- those that are in use are an error as before
    assert.matches("raise 'ulimit -n'", result.out, 1, true)
  end)
end)
