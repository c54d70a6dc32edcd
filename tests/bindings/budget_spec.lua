--- ms.privacy: epsilon and calibration from Lua. The figures themselves are tests/accountant's.
local ms = require "moonshard"

local message_of = require("tests.support.support").message_of

describe("a privacy table", function()
  it("without a private engine is an error, not plain training", function()
    local parts = { model = ms.model("linear-tiny", { device = "cpu" }), clip = ms.clip("none"),
      data = ms.data.synthetic { batch_size = 2 }, privacy = { target_epsilon = 1, budget_steps = 3, delta = 1e-5 } }
    assert.matches("option 'privacy': expected a private engine beside it, got clip = none", message_of(ms.trainer, parts), 1, true)
  end)
end)

describe("ms.privacy.epsilon", function()
  it("gives the order of rdp and the bracket of prv and pld", function()
    local rdp = ms.privacy.epsilon { method = "rdp", q = 0.01, sigma = 1.1, steps = 1000, delta = 1e-5 }
    assert.is_near(1.71177, rdp.epsilon, 1e-4)
    assert.is_near(9.6, rdp.best_order, 1e-9)
    assert.is_nil(rdp.upper)
    assert.is_true(rdp.guarantee)
    for _, method in ipairs { "prv", "pld" } do
      local bracket = ms.privacy.epsilon { method = method, q = 0.01, sigma = 1.1, steps = 1000, delta = 1e-5 }
      assert.are.equal(bracket.upper, bracket.epsilon)
      assert.is_true(bracket.lower < bracket.upper and bracket.upper < rdp.epsilon)
    end
    assert.are.equal("prv", ms.privacy.epsilon { q = 0.01, sigma = 1.1, steps = 10, delta = 1e-5 }.method)
  end)

  it("labels gdp as what it is", function()
    local gdp = ms.privacy.epsilon { method = "gdp", q = 0.01, sigma = 1.1, steps = 1000, delta = 1e-5 }
    assert.is_false(gdp.guarantee)
    assert.are.equal("approximation, not a guarantee", gdp.note)
  end)

  it("takes phases and orders", function()
    local phases = { { q = 0.01, sigma = 1.1, steps = 400 }, { q = 0.01, sigma = 1.1, steps = 600 } }
    local parts = ms.privacy.epsilon { method = "rdp", phases = phases, delta = 1e-5 }
    local whole = ms.privacy.epsilon { method = "rdp", q = 0.01, sigma = 1.1, steps = 1000, delta = 1e-5 }
    assert.is_near(whole.epsilon, parts.epsilon, 1e-12)
    assert.are.equal(0, ms.privacy.epsilon { method = "pld", phases = {}, delta = 1e-5 }.epsilon)
    local two = ms.privacy.epsilon { method = "rdp", orders = { 2, 3 }, q = 0.01, sigma = 1.1, steps = 1000, delta = 1e-5 }
    assert.are.equal(3, two.best_order)
    assert.is_true(two.epsilon > whole.epsilon)
  end)

  it("says what it wants", function()
    local good = { method = "rdp", q = 0.01, sigma = 1.1, steps = 1000, delta = 1e-5 }
    local function with(key, value)
      local options = {}
      for name, each in pairs(good) do options[name] = each end
      options[key] = value
      return message_of(ms.privacy.epsilon, options)
    end
    assert.matches("did you mean 'sigma'", with("sigme", 1), 1, true)
    assert.matches("expected a method of rdp, prv, pld, gdp, gaussian, got 'moments'", with("method", "moments"), 1, true)
    assert.matches("option 'q': expected a number, got string", with("q", "much"), 1, true)
    assert.matches("sampling rate q from 0 to 1, got 2", with("q", 2), 1, true)
    assert.matches("whole number of steps, got 1.5", with("steps", 1.5), 1, true)
    assert.matches("delta above 0 and below 1, got 0", with("delta", 0), 1, true)
    assert.matches("expected q = 1", with("method", "gaussian"), 1, true)
    assert.matches("either phases or q, got both", with("phases", { { q = 1, sigma = 1, steps = 1 } }), 1, true)
    assert.matches("phase 1: expected a number 'sigma', got nothing",
      message_of(ms.privacy.epsilon, { phases = { { q = 1, steps = 1 } }, delta = 1e-5 }), 1, true)
    assert.matches("orders", with("orders", { "two" }), 1, true)
    assert.matches("orders above 1", with("orders", { 0.5 }), 1, true)
  end)
end)

describe("ms.privacy.calibrate", function()
  it("finds what is left out, and never overshoots", function()
    local known = { q = 0.01, sigma = 1.2, steps = 800 }
    for name in pairs(known) do
      local options = { method = "rdp", delta = 1e-5, target_epsilon = 1.5 }
      for each, value in pairs(known) do
        if each ~= name then options[each] = value end
      end
      local found = ms.privacy.calibrate(options)
      assert.are.equal(name, found.found)
      assert.is_true(found.epsilon <= 1.5 and found.epsilon > 1.49)
      local again = ms.privacy.epsilon { method = "rdp", q = found.q, sigma = found.sigma, steps = found.steps, delta = 1e-5 }
      assert.are.equal(found.epsilon, again.epsilon)
    end
  end)

  it("says what it wants", function()
    assert.matches("got all of them",
      message_of(ms.privacy.calibrate, { q = 1, sigma = 1, steps = 1, delta = 1e-5, target_epsilon = 1 }), 1, true)
    assert.matches("got neither q nor sigma", message_of(ms.privacy.calibrate, { steps = 1, delta = 1e-5, target_epsilon = 1 }), 1, true)
    assert.matches("option 'target_epsilon': expected a number, got nothing",
      message_of(ms.privacy.calibrate, { q = 0.1, steps = 1, delta = 1e-5 }), 1, true)
    for _, method in ipairs { "prv", "rdp", "pld", "gdp" } do
      assert.matches("option 'sigma': expected a noise multiplier above 0, got 0; without noise no epsilon holds",
        message_of(ms.privacy.epsilon, { method = method, q = 0.1, sigma = 0, steps = 1, delta = 1e-5 }), 1, true)
    end
    assert.matches("expected a noise multiplier above 0", message_of(ms.privacy.epsilon,
      { phases = { { q = 0.1, sigma = 1, steps = 1 }, { q = 0.1, sigma = 0, steps = 2 } }, delta = 1e-5 }), 1, true)
    assert.matches("expected a noise multiplier above 0",
      message_of(ms.privacy.calibrate, { q = 0.1, sigma = 0, delta = 1e-5, target_epsilon = 1 }), 1, true)
    assert.matches("one step gives", message_of(ms.privacy.calibrate,
      { method = "rdp", q = 1, sigma = 0.5, delta = 1e-5, target_epsilon = 0.1 }), 1, true)
  end)
end)
