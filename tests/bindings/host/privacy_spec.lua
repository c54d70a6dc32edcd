--- moonshard privacy, from outside.
local support = require "tests.support.support"

local quoted = support.shell_quoted(support.program())
local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local function run(words) return support.run(quoted .. " privacy " .. words, { folder = folder }) end

describe("moonshard privacy", function()
  it("shows guarantees and the approximation side by side", function()
    local result = run("epsilon --q 0.01 --sigma 1.1 --steps 1000 --delta 1e-5")
    assert.are.equal(0, result.code, result.err)
    assert.matches("rdp +1%.71177 +order 9%.6", result.out)
    assert.matches("prv +1%.525%d+ +between 1%.505%d* and 1%.525", result.out)
    assert.matches("gdp +1%.37743 +approximation, not a guarantee", result.out)
  end)

  it("takes batch size, dataset size and epochs, and writes JSON", function()
    local result = run("epsilon --batch-size 100 --dataset-size 10000 --epochs 2.5 --sigma 1 --delta 1e-5 --method rdp --json")
    assert.are.equal(0, result.code, result.err)
    assert.matches('"steps": 250', result.out, 1, true)
    assert.matches('"q": 0.01', result.out, 1, true)
    assert.matches('"guarantee": true', result.out, 1, true)
  end)

  it("calibrates what is left out", function()
    local result = run("calibrate --q 0.01 --steps 1000 --delta 1e-5 --target-epsilon 1 --method rdp")
    assert.are.equal(0, result.code, result.err)
    assert.matches("rdp +0%.01 +1%.513%d* +1000 ", result.out)
  end)

  it("answers mistakes with one line and code 2", function()
    for words, text in pairs {
      [""] = "expected epsilon or calibrate, got nothing",
      ["spend"] = "got 'spend'",
      ["epsilon --q 0.1 --sigma 0 --steps 1 --delta 1e-5"] = "'--sigma': expected a noise multiplier above 0, got 0; without noise",
      ["calibrate --q 0.1 --sigma 0 --delta 1e-5 --target-epsilon 1"] = "expected a noise multiplier above 0, got 0",
      ["epsilon --q 0.1 --sigma 1 --delta 1e-5"] = "expected --steps, got nothing",
      ["epsilon --q 2 --sigma 1 --steps 1 --delta 1e-5"] = "sampling rate q from 0 to 1, got 2",
      ["epsilon --q 0.1 --batch-size 3 --dataset-size 9 --sigma 1 --steps 1 --delta 1e-5"] = "either --q or --batch-size, got both",
      ["epsilon --batch-size 3 --sigma 1 --steps 1 --delta 1e-5"] = "--batch-size and --dataset-size together",
      ["epsilon --batch-size 9 --dataset-size 3 --sigma 1 --steps 1 --delta 1e-5"] = "a batch size from 1 to the dataset size",
      ["epsilon --q 0.1 --sigma 1 --steps 1 --delta 1e-5 --method gaussian"] = "expected q = 1",
      ["epsilon --q 0.1 --sigmas 1 --steps 1 --delta 1e-5"] = "did you mean '--sigma'",
      ["calibrate --q 0.1 --sigma 1 --steps 1 --delta 1e-5 --target-epsilon 1"] = "got all of them",
    } do
      local result = run(words)
      assert.are.equal(2, result.code, words)
      assert.matches(text, result.err, 1, true)
      assert.are.equal("", result.out)
    end
  end)

  it("--help says what there is", function()
    local result = run("--help")
    assert.are.equal(0, result.code)
    assert.matches("--target-epsilon", result.out, 1, true)
  end)
end)
