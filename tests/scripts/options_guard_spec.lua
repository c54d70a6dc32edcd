require "moonshard"
local guard = require "moonshard.options_guard"

local message_of = require("tests.support.support").message_of

describe("the options guard", function()
  it("copies good options and takes nil for none", function()
    local given = { a = 1, b = false }
    local copy = guard.check("f", given, { "a", "b" }, 1)
    assert.are.same(given, copy)
    assert.are_not.equal(given, copy)
    assert.are.same({}, guard.check("f", nil, { "a" }, 1))
  end)

  it("names the nearest of an unknown key, and all known ones", function()
    assert.matches("f: unknown option 'baselin'; did you mean 'baseline'? known: baseline, axis",
      message_of(guard.check, "f", { baselin = 1 }, { "baseline", "axis" }, 1), 1, true)
  end)

  it("names no nearest where none is near", function()
    assert.matches("f: unknown option 'zzzzzzzzz'; known: baseline, axis",
      message_of(guard.check, "f", { zzzzzzzzz = 1 }, { "baseline", "axis" }, 1), 1, true)
  end)

  it("a name without end is clipped", function()
    assert.is_true(#message_of(guard.check, "f", { [("x"):rep(1e6)] = 1 }, { "a" }, 1) < 200)
  end)

  it("a list is not an option table", function()
    assert.matches("f: unknown option '1'; known: a", message_of(guard.check, "f", { "x" }, { "a" }, 1), 1, true)
    assert.matches("f: expected a table of options, got string", message_of(guard.check, "f", "x", { "a" }, 1), 1, true)
  end)

  it("raises at the line of the caller", function()
    local function library(options) return guard.check("library", options, { "a" }, 2), nil end
    local line = debug.getinfo(1, "l").currentline + 1
    local message = message_of(function() local _ = library { b = 1 } end) -- luacheck: ignore
    assert.matches("options_guard_spec.lua:" .. line .. ": library:", message, 1, true)
  end)
end)
