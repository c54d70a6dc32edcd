--- moonshard sweep scaling: the documents' workloads on simulated clusters.
local support = require "tests.support.support"
local ms = require "moonshard"

describe("moonshard sweep scaling", function()
  local folder
  before_each(function() folder = support.temporary_folder() end)
  after_each(function() support.remove(folder) end)

  it("writes records, a table and three figures, all of them marked as modelled", function()
    local said = support.run_program(("sweep scaling --output-dir %s"):format(folder))
    assert.are.equal(0, said.code, said.err)
    local path = said.out:match "records: (%S+)"
    local runs = ms.load(path)
    assert.are.equal(20, #runs.points)
    assert.are.equal(20, runs:count "ok")
    for _, point in ipairs(runs.points) do assert.truthy(point.options.world:find "^modelled:") end
    local rows = 0
    for line in support.read(path .. "/scaling.csv"):gmatch "[^\n]+" do
      assert.truthy(line:find "^all," or line:find "^modelled,")
      rows = rows + 1
    end
    assert.is_true(rows > 200)
    for _, name in ipairs { "strong_scaling", "weak_scaling", "scaling_by_link" } do
      local spec = support.parse_json(support.read(("%s/visualizations/%s.plot.json"):format(path, name)))
      assert.truthy(spec.title:find "modelled")
      assert.are.equal(5, #spec.panels)
    end
  end)

  it("is slower over one adapter of a node than over eight", function()
    local function speed(words)
      local said = support.run_program(("sweep scaling --output-dir %s %s"):format(folder, words))
      local csv = support.read(said.out:match "records: (%S+)" .. "/scaling.csv")
      return tonumber(csv:match "weak,000 Llama 3.1 8B,none,64,,128,[^,]+,([^,]+)")
    end
    assert.is_true(speed "--nics 1" < 0.8 * speed "")
  end)
end)
