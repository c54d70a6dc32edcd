--- Which points a sweep has: grid, zip, when, only, shuffle; and what it refuses.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local message_of = require("tests.support.support").message_of

local function labels(sweep)
  local list = {}
  for i, point in ipairs(sweep.points) do list[i] = point.label end
  return list
end

local function tiny(spec)
  spec.model, spec.device, spec.hidden_dim = spec.model or "linear-tiny", "cpu", spec.hidden_dim or 16
  return spec
end

describe("zip", function()
  it("walks its lists together and is crossed with the grid", function()
    local sweep = ms.sweep(tiny { grid = { mode = { "none", "ghost" } }, zip = { batch_size = { 2, 4 }, seq_length = { 64, 32 } } })
    assert.are.same({ "mode", "batch_size", "seq_length" }, sweep.axes)
    assert.are.same({ "mode=none batch_size=2 seq_length=64", "mode=none batch_size=4 seq_length=32",
      "mode=ghost batch_size=2 seq_length=64", "mode=ghost batch_size=4 seq_length=32" }, labels(sweep))
  end)

  it("lists of two lengths, and an axis in both, are refused at the caller's line", function()
    local message = message_of(function() return ms.sweep(tiny { zip = { batch_size = { 2, 4 }, seq_length = { 64 } } }), 1 end)
    assert.matches("points_spec%.lua:%d+: ms%.sweep: zip: expected lists of one length, got %d values of '[%w_]+' and %d of '[%w_]+'",
      message)
    message = message_of(function() return ms.sweep(tiny { grid = { batch_size = { 1 } }, zip = { batch_size = { 2 } } }), 1 end)
    assert.matches("ms.sweep: option 'batch_size': expected it in grid or in zip, got it in both", message, 1, true)
  end)
end)

describe("when", function()
  it("keeps the points it accepts, and sees effective options and the user's words", function()
    local seen = {}
    local sweep = ms.sweep(tiny { grid = { mode = { "no_dp", "ghost" }, batch_size = { 2, 4 } }, when = function(options, asked)
      seen[#seen + 1] = asked.mode .. "/" .. options.mode
      return options.mode ~= "ghost" or options.batch_size == 2
    end })
    assert.are.same({ "mode=no_dp batch_size=2", "mode=no_dp batch_size=4", "mode=ghost batch_size=2" }, labels(sweep))
    assert.are.equal("no_dp/none", seen[1])
  end)

  it("may exclude combinations that could not be resolved", function()
    local grid = { hidden_dim = { 16, 18 }, num_heads = { 4 } }
    local spec = { model = "llama3-tiny", device = "cpu", grid = grid, when = function(options) return options.hidden_dim % 4 == 0 end }
    assert.are.same({ "hidden_dim=16 num_heads=4" }, labels(ms.sweep(spec)))
    spec.when = nil
    assert.is_false((pcall(ms.sweep, spec)))
  end)

  it("that accepts nothing is an error", function()
    local message = message_of(function() return ms.sweep(tiny { when = function() return false end }), 1 end)
    assert.matches("expected at least one point, got none; check when", message, 1, true)
  end)
end)

describe("a sweep's own keys", function()
  it("are checked by name and type", function()
    for text, spec in pairs {
      ["option 'when': expected a function, got 5"] = { when = 5 },
      ["option 'each': expected a function, got x"] = { each = "x" },
      ["option 'zip': expected a table { option = { values } }, got x"] = { zip = "x" },
      ["option 'baseline': expected a mode or { option = value }, got 5"] = { baseline = 5 },
      ["option 'baseline': expected one { option = value }, got several"] = { baseline = { mode = "none", batch_size = 1 } },
      ["growing: unknown option 'bach_size'"] = { growing = { "bach_size" } },
      ["expect 1: expected a check (function), got nil"] = { expect = { { claim = "x" } } },
      ["expect 1: expected a claim (text), got nil"] = { expect = { { check = print } } },
    } do
      local message = message_of(function() return ms.sweep(tiny(spec)), 1 end)
      assert.matches("ms.sweep: " .. text, message, 1, true)
      assert.matches("points_spec%.lua:%d+: ", message)
    end
  end)

  it("options of run are checked", function()
    local folder = support.temporary_folder()
    finally(function() support.remove(folder) end)
    local sweep = ms.sweep(tiny { out = folder .. "/missing" })
    for text, options in pairs {
      ["option 'retry': expected a number, got x"] = { retry = "x" },
      ["option 'timeout': expected 0 or more, got -1"] = { timeout = -1 },
      ["option 'launcher': expected local or slurm, got 'pbs'"] = { launcher = "pbs" },
      ["option 'fail_fast': expected true or false, got 1"] = { fail_fast = 1 },
      ["option 'shuffle': expected true or a whole number as the seed, got x"] = { shuffle = "x" },
      ["expected at least one point, got none; check only"] = { only = { mode = "zzz" } },
    } do
      assert.matches("sweep:run: " .. text, message_of(function() return sweep:run(options), 1 end), 1, true)
    end
  end)
end)

describe("moonshard sweep", function()
  local place
  before_each(function() place = support.place() end)
  after_each(function() place:remove() end)

  it("hands words that are not its own to the script, in order", function()
    place:script([[print("words", ...)]])
    local result = place:run("sweep sweep.lua --preset tiny --set iters=1 --seq-lengths 8 16 --shuffle 7 --x=1 --retry 2")
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("words\t--preset\ttiny\t--seq-lengths\t8\t16\t--x=1\n", result.out)
    assert.are.equal("words\t--retry\t--help\n", place:run("sweep --all sweep.lua -- --retry --help").out)
    assert.are.equal("words\t--help\n", place:run("sweep sweep.lua --help").out)
  end)

  it("refuses words that a script without flags would pass over", function()
    place:script([[ms.sweep { TINY }:run()]])
    local result = place:run("sweep sweep.lua --fail-fsat")
    assert.are.equal(2, result.code)
    assert.matches("sweep: unknown option '--fail-fsat'; did you mean '--fail-fast'?", result.err, 1, true)
    assert.are.equal(2, place:run("sweep sweep.lua word").code)
    assert.matches("sweep: option '--timeout': expected a number, got 'x'", place:run("sweep sweep.lua --timeout x").err, 1, true)
  end)

  it("--help names every flag", function()
    local result = place:run("sweep --help")
    assert.are.equal(0, result.code)
    for _, flag in ipairs { "set", "only", "resume", "out", "dry-run", "retry", "timeout", "fail-fast", "all", "shuffle", "launcher",
      "slurm-args", "no-lock", "retry-oom", "drain-timeout" } do
      assert.matches("--" .. flag, result.out, 1, true)
    end
  end)

  it("--shuffle is another order of the same points, the same for one seed", function()
    place:script([[ms.sweep { TINY, grid = { seq_length = { 1, 2, 3, 4, 5, 6, 7, 8 } } }:run()]])
    local function order(words)
      local result = place:run("sweep sweep.lua --dry-run " .. words)
      assert.are.equal(0, result.code, result.err)
      return (result.out:gsub("%x+\n", ""):gsub("%d+%. ", ""))
    end
    assert.are.equal(order("--shuffle 7"), order("--shuffle=7"))
    assert.are_not.equal(order("--shuffle 7"), order(""))
    assert.are_not.equal(order("--shuffle 7"), order("--shuffle 8"))
    assert.are.equal(#order(""), #order("--shuffle"))
  end)
end)
