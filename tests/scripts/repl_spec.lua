local repl = require "moonshard.repl"

-- A session whose output is collected; the module is a stand-in without native code.
local function new_session(module, host)
  package.loaded.moonshard = module
  local session
  local written = { out = "", err = "" }
  host = host or {}
  host.out = function(text) written.out = written.out .. text end
  host.err = function(text) written.err = written.err .. text end
  session = repl.new(host)
  return session, written
end

local function fake_module()
  local ms = { version = "0.1.0", libtorch_version = "2.4.0" }
  function ms.run(options) return options end
  function ms.undocumented() end
  local docs = {
    [ms.run] = {
      name = "ms.run", signature = "ms.run(options) -> Result", text = "Run it.\nMore.",
    },
  }
  function ms.doc_of(value) return docs[value] end
  function ms.memory() return { cpu_allocated_bytes = 4096 } end
  return ms
end

describe("the session", function()
  local session, written
  local loaded = package.loaded.moonshard

  before_each(function() session, written = new_session(fake_module()) end)
  after_each(function() package.loaded.moonshard = loaded end)

  -- Output of one entry.
  local function entered(text)
    written.out, written.err = "", ""
    local outcome = session:run(text)
    return written.out, written.err, outcome
  end

  -- What one entry wrote to the error stream.
  local function complaint(text)
    local _, err = entered(text)
    return err
  end

  it("prints the value of an expression", function()
    assert.equal("2\n", (entered("1 + 1")))
    assert.equal("2\n", (entered("= 1 + 1")))
    assert.equal('1\tnil\t"x"\n', (entered('1, nil, "x"')))
  end)

  it("prints nothing for statements and for calls that give nil", function()
    assert.equal("", (entered("x = 5")))
    assert.equal("", (entered("(function() return nil end)()")))
    assert.equal("nil\n", (entered("no_such_name")))
  end)

  it("keeps the last value in _", function()
    entered("6 * 7")
    assert.equal("43\n", (entered("_ + 1")))
  end)

  it("keeps top-level locals for the next entry", function()
    entered("local a, b = 1, 2; local c = a + b")
    entered("local function double(n) return n * 2 end")
    assert.equal("1\t2\t3\t8\n", (entered("a, b, c, double(4)")))
  end)

  it("resets a name that is declared without a value", function()
    entered("x = 1")
    entered("local x")
    assert.equal("nil\n", (entered("x")))
    assert.equal("", complaint("local p; local q, r"))
  end)

  it("keeps locals of blocks and functions local", function()
    entered("do local hidden = 1 end")
    entered("f = function() local inner = 1 return inner end f()")
    assert.equal("nil\tnil\n", (entered("hidden, inner")))
  end)

  it("does not hoist inside strings and comments", function()
    entered('s = "local x = 1" -- local y = 2')
    assert.equal('"local x = 1"\n', (entered("s")))
  end)

  it("reports the same syntax errors as Lua", function()
    assert.matches("near '%.'", complaint("local t.x = 1"))
    assert.matches("unexpected symbol near '%*'", complaint("1 +* 2"))
  end)

  it("leaves the globals of scripts alone", function()
    entered("session_only_name = 1")
    assert.is_nil(rawget(_G, "session_only_name"))
  end)

  it("asks for more input when the text stops early", function()
    for _, text in ipairs { "for i = 1, 2 do", "x =", "{ 1,", "f(", "[[long", "'a\\", "1 +",
                             "%time for i = 1, 2 do" } do
      assert.is_false(session:is_complete(text), text)
    end
    for _, text in ipairs { "", "x = = 2", "1 + 1", "for i = 1, 2 do end", "'open", ".help", "?ms",
                             "-- note" } do
      assert.is_true(session:is_complete(text), text)
    end
  end)

  it("shows an error with the user's frames only", function()
    entered("function inner() error('boom') end")
    entered("function outer() inner() return 1 end")
    local _, err, outcome = entered("local r = outer()")
    assert.is_false(outcome)
    assert.matches("boom", err)
    assert.matches("in function 'inner'", err)
    assert.matches("in function 'outer'", err)
    assert.is_nil(err:find("repl.lua", 1, true))
    assert.is_nil(err:find("xpcall", 1, true))
  end)

  it("shows an error without a traceback when there is nothing to trace", function()
    local _, err = entered("error('plain')")
    assert.equal("plain\n", (err:gsub("^ms%[%d+%]:1: ", "")))
  end)

  it("prints error values that are tables", function()
    assert.matches("error value: { code = 3 }", complaint("error({ code = 3 })"))
  end)

  it("keeps all values after an error", function()
    entered("x = 5")
    entered("x = x + nil_value.field")
    assert.equal("5\n", (entered("x")))
  end)

  it("refuses byte code", function()
    local _, err, outcome = entered("\27LJ\2")
    assert.is_false(outcome)
    assert.matches("expected Lua source text, got byte code", err)
  end)

  it("refuses unknown commands and lists the known ones", function()
    assert.matches("got '%.sav'; known: .*%.save", complaint(".sav x"))
  end)

  it("takes a number that starts with a dot as Lua", function()
    assert.equal("0.5\n", (entered(".5")))
  end)

  it("says so when the module is missing", function()
    package.loaded.moonshard = nil
    package.preload.moonshard = function() error("not built") end
    local _, output = new_session(nil)
    package.preload.moonshard = nil
    assert.matches("module 'moonshard' is not there.*not built", output.err)
  end)

  it("has a banner with the versions", function()
    local expected = "^moonshard 0%.1%.0 %(LuaJIT [%w%.%-]+, LibTorch 2%.4%.0%)\nhelp%(%)"
    assert.matches(expected, session:banner())
  end)

  it("inserts blanks for Tab on an empty line, and the common part of names", function()
    assert.equal("  ", (session:complete("")))
    assert.equal("ented", (session:complete("ms.undocum")))
    local insert, listing = session:complete("ms.")
    assert.equal("", insert)
    assert.matches("doc_of", listing)
  end)

  describe("help", function()
    it("shows signature and text of a documented value", function()
      local expected = "ms.run(options) -> Result\n  Run it.\n  More.\n"
      assert.equal(expected, (entered("help(ms.run)")))
      assert.equal(expected, (entered("?ms.run")))
      assert.equal(expected, (entered('help "ms.run"')))
    end)

    it("lists the members of a module with their first lines", function()
      local out = entered("help(ms)")
      assert.matches("run  Run it%.", out)
      assert.is_nil(out:find("More", 1, true))
      assert.matches("without a text: .*undocumented", out)
    end)

    it("answers a question mark behind a name, and asks for no second line after ?x:method", function()
      local expected = "ms.run(options) -> Result\n  Run it.\n  More.\n"
      assert.equal(expected, (entered("ms.run?")))
      entered("object = { go = ms.run }")
      assert.is_true(session:is_complete("?object:go"))
      assert.equal(expected, (entered("?object:go")))
    end)

    it("breaks long texts at the width of the terminal", function()
      session.host.width = function() return 40 end
      session.module.doc_of = function() return { name = "f", signature = "f()", text = ("word "):rep(20) } end
      for line in entered("help(ms.run)"):gmatch("[^\n]+") do assert.is_true(#line <= 40, line) end
    end)

    it("says what can be done about an unknown name", function()
      local _, err, outcome = entered("?ms.nothing")
      assert.is_false(outcome)
      assert.matches("got 'ms.nothing'; try help%(ms%)", err)
    end)

    it("shows parameters and place of a function without a text", function()
      entered("function f(alpha, beta) end")
      assert.matches("f%(alpha, beta%): a function of ms%[1%]:1", (entered("?f")))
    end)
  end)

  describe("commands", function()
    it("%time prints the value and the wall time", function()
      local ticks = 0
      session.host.now = function() ticks = ticks + 0.25 return ticks end
      assert.equal("3\ntime: 250.000 ms\n", (entered("%time 1 + 2")))
    end)

    it("%timeit prints median and range", function()
      local clock = 0
      session.host.now = function() clock = clock + 0.01 return clock end
      assert.matches("^median 10 ms, IQR .* samples of 1 runs\n$", (entered("%timeit 1 + 2")))
    end)

    it("%mem prints the heap and the tensors", function()
      -- Large beside what else the heap gains or loses between two full collections.
      local out = entered("%mem kept = string.rep('x', 10000000)")
      local gained = tonumber(out:match("Lua heap: %d+ %-> %d+ bytes %(%+(%d+)%)"))
      assert.is_true(gained and gained > 9e6 and gained < 3e7, out)  -- the string's buffer stays, too
      assert.matches("host tensors: 4096 %-> 4096 bytes %(%+0%)", out)
      session.module.memory = nil
      assert.is_nil(entered("%mem 1"):find("tensors", 1, true))
    end)

    it("measuring commands report errors of their argument", function()
      for _, name in ipairs { "%time", "%timeit", "%mem" } do
        assert.matches("boom", complaint(name .. " error('boom')"))
        assert.matches("expected an expression", complaint(name))
      end
    end)

    it("%jit switches the compiler and warns", function()
      local was_on = jit.status()
      assert.matches("Ctrl%-C cannot stop a compiled loop", (entered("%jit on")))
      assert.matches("^JIT on", (entered("%jit status")))
      entered("%jit off")
      assert.matches("^JIT off", (entered("%jit")))
      assert.matches("expected on, off or status, got 'x'", complaint("%jit x"))
      if was_on then jit.on() end
    end)

    it(".exit leaves", function()
      assert.equal("exit", session:run(".exit"))
    end)

    it(".history lists the latest entries", function()
      entered("a = 1")
      entered("b = 2")
      assert.equal("  b = 2\n  .history 2\n", (entered(".history 2")))
    end)

    it(".help lists every command", function()
      local out = entered(".help")
      for _, name in ipairs { "%time", "%timeit", "%mem", "%jit", ".save", ".history", ".exit" } do
        assert.is_truthy(out:find(name, 1, true))
      end
    end)

    it(".save writes the good entries as a script that runs", function()
      local path = os.tmpname()
      for _, text in ipairs {
        "local a = 20", "a + 1", "error('bad entry')", "if a then return a end",
        "(print or error)('')",
        "%time c = a * 2", "local d = (_ or 0) + c -- note",
      } do entered(text) end
      assert.matches("6 entries written", (entered(".save " .. path)))
      local env = setmetatable({ print = function() end }, { __index = _G })
      local script = assert(loadfile(path, "t", env))
      script()
      os.remove(path)
      assert.equal(40, env.c)
      assert.equal(21, env._)
    end)

    it(".save writes a length as an expression, and leaves help out", function()
      entered("list = { 1, 2 }")
      assert.equal("2\n", (entered("#list")))
      entered("help(ms.run)")
      local path = os.tmpname()
      entered(".save " .. path)
      local file = assert(io.open(path))
      local script = file:read("*a")
      file:close()
      os.remove(path)
      assert.matches("\n_ = #list\n%-%- help%(ms%.run%)\n", script)
      assert.is_function(load(script))
    end)

    it(".save says why a file cannot be written", function()
      local file = os.tmpname()  -- a file is no folder
      assert.matches(("cannot write '%s/x.lua'"):format(file), complaint((".save %s/x.lua"):format(file)), 1, true)
      os.remove(file)
    end)
  end)

  describe("the start-up file", function()
    local function with_file(text, check)
      local path = os.tmpname()
      local file = assert(io.open(path, "w"))
      file:write(text)
      file:close()
      check(session:run_file(path))
      os.remove(path)
    end

    it("sets names of the session", function()
      with_file("ready = 'yes'", function(good)
        assert.is_true(good)
        assert.equal('"yes"\n', (entered("ready")))
      end)
    end)

    it("may be missing", function()
      local file = os.tmpname()
      assert.is_true(session:run_file(file .. "/startup.lua"))
      os.remove(file)
      assert.equal("", written.err)
    end)

    it("shows its errors and the session goes on", function()
      with_file("before = 1 error('trouble')", function(good)
        assert.is_false(good)
        assert.matches("start%-up file:\n.*trouble", written.err)
        assert.equal("1\n", (entered("before")))
      end)
    end)
  end)
end)
