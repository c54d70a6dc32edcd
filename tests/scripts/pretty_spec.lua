local pretty = require "moonshard.pretty"

describe("pretty.format", function()
  it("prints the array part first, then names in order, then other keys", function()
    local value = { 10, 20, zebra = 1, apple = 2, ["two words"] = 3, [true] = 4, [2.5] = 5 }
    assert.equal('{ 10, 20, apple = 2, ["two words"] = 3, zebra = 1, [true] = 4, [2.5] = 5 }',
      pretty.format(value, { width = 200 }))
  end)

  it("shows a cycle instead of following it", function()
    local loop = { name = "loop" }
    loop.self = loop
    assert.equal('{ name = "loop", self = <cycle> }', pretty.format(loop))
  end)

  it("prints a table twice when it is shared without a cycle", function()
    local shared = { 1 }
    assert.equal("{ { 1 }, { 1 } }", pretty.format { shared, shared })
  end)

  it("stops at the depth limit", function()
    assert.equal("{ { { ... } } }", pretty.format({ { { { 1 } } } }, { depth = 2 }))
    assert.equal("{ a = { ... } }", pretty.format({ a = { b = 1 } }, { depth = 1 }))
  end)

  it("stops at the item limit and says how many are left", function()
    local long = {}
    for i = 1, 100 do long[i] = i end
    assert.matches("3, %.%.%. 97 more", (pretty.format(long, { items = 3 }):gsub("%s+", " ")))
  end)

  it("breaks a table into lines when it is wider than the terminal", function()
    local text = pretty.format({ first = ("x"):rep(30), second = ("y"):rep(30) }, { width = 40 })
    local xs, ys = ("x"):rep(30), ("y"):rep(30)
    assert.equal(('{\n  first = "%s",\n  second = "%s"\n}'):format(xs, ys), text)
  end)

  it("packs a long list of numbers into full lines", function()
    local long = {}
    for i = 1, 30 do long[i] = i end
    for line in pretty.format(long, { width = 40 }):gmatch("[^\n]+") do
      assert.is_true(#line <= 41)
    end
    assert.is_true(select(2, pretty.format(long, { width = 40 }):gsub("\n", "")) < 10)
  end)

  it("quotes strings, escapes control bytes and cuts long ones", function()
    assert.equal([["a\n\"b\"\000"]], pretty.format('a\n"b"\0'))
    assert.equal('"xxxxx"... (20 bytes)', pretty.format(("x"):rep(20), { string_length = 5 }))
  end)

  it("does not cut inside a UTF-8 character", function()
    assert.equal('"a"... (7 bytes)', pretty.format("aééé", { string_length = 2 }))
  end)

  it("uses __tostring, and survives one that fails", function()
    local tensor = setmetatable({}, { __tostring = function() return "Tensor [3]" end })
    local broken = setmetatable({}, { __tostring = function() error("no") end })
    assert.equal("{ Tensor [3] }", pretty.format { tensor })
    assert.matches("^<error in __tostring: .*no>$", pretty.format(broken))
  end)

  it("keeps only the first line of a nested multi-line __tostring", function()
    local report = setmetatable({}, { __tostring = function() return "head\nbody" end })
    assert.equal("head\nbody", pretty.format(report))
    assert.equal("{ head ... }", pretty.format { report })
  end)

  it("prints 64-bit integers with their suffix", function()
    assert.equal("42LL", pretty.format(42LL))
    assert.equal("{ n = 7ULL }", pretty.format { n = 7ULL })
  end)

  it("names library functions and places others", function()
    assert.equal("function: string.format", pretty.format(string.format))
    assert.matches("^function: .*pretty_spec%.lua:%d+$", pretty.format(function() end))
    local named = function() end
    assert.equal("function: ms.run",
      pretty.format(named, { name_of = function(fn) return fn == named and "ms.run" or nil end }))
  end)

  it("never calls __index or __pairs of a table", function()
    local touchy = setmetatable({ a = 1 }, {
      __index = function() error("indexed") end, __pairs = function() error("iterated") end,
    })
    assert.equal("{ a = 1 }", pretty.format(touchy))
  end)

  it("prints empty tables, nil, booleans and infinities", function()
    assert.equal("{}", pretty.format {})
    assert.equal("nil", pretty.format(nil))
    assert.equal("true", pretty.format(true))
    assert.equal("inf", pretty.format(math.huge))
  end)
end)
