--- A sample more or less moves the sum of real ranks by at most its bound; sums that are rounded on their way make no claim. Sharded
-- parameters are the verify_N_ranks tests.
local support = require "tests.support.support"

local quoted = support.shell_quoted(support.program())

local function verify(options)
  local folder = support.temporary_folder()
  local result = support.run(("%s verify --model linear-tiny --dtype float32 --json --log-dir %s/logs %s"):format(quoted, folder, options),
    { folder = folder, seconds = 120 })
  support.remove(folder)
  return result
end

describe("neighbours on real ranks", function()
  it("stay within the bound under ddp, whatever dtype gradients travel in, or nothing is claimed", function()
    local result = verify("--nproc 2 --parallel ddp --options neighbour")
    assert.are.equal(0, result.code, result.out .. result.err)
    for _, layer in ipairs { "all", "all, sums in float32", "all, sums in float64", "all, sums in bfloat16" } do
      assert.matches('"layer": "' .. layer .. '"', result.out, 1, true)
    end
  end)

  it("whose clipping is broken are found", function()
    local result = verify("--nproc 2 --parallel ddp --options neighbour --engine ghost --fault short_norm")
    assert.are.equal(4, result.code, result.out .. result.err)
  end)
end)
