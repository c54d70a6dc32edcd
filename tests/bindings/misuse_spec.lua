--- G15, T26: no Lua input to a bound function kills the process or leaves an unreadable error.
-- The calls happen in children (misuse_child.lua); a child that dies is started again behind the case
-- that killed it. Left out: ms.run with good options (it would run experiments; ms.resolve reads the same
-- options), sizes that are valid and fill the machine's memory (children have 8 GiB of address space).
local support = require "tests.support.support"

local child = support.root() .. "/tests/bindings/misuse_child.lua"
local seconds_per_child = 160  -- for thousands of calls, which take 20 to 50 s on two cores; one that hangs ends none
local least_inputs = 100

local function start(group, words, folder)
  return support.run(("exec luajit %s %s %s"):format(child, group, words), {
    folder = folder, seconds = seconds_per_child, limit_kb = 8 * 1024 * 1024,
    environment = { LUA_CPATH = support.module_pattern() .. ";;" },
  })
end

--- Names of the functions of a group.
local function names_of(group)
  local folder = support.temporary_folder()
  local result = start(group, "list", folder)
  support.remove(folder)
  assert(result.code == 0, result.err)
  return result.out:gmatch("[^\n]+")
end

--- Runs a group to its end. Findings and number of calls by function name.
local function attack(group)
  local top = support.temporary_folder()
  local folder = top .. "/a/b/c/d/e"  -- names like ../../.. stay inside the temporary folder
  os.execute("mkdir -p " .. folder)
  local found, calls, dead, first = {}, {}, {}, 1
  for _ = 1, 60 do
    local result = start(group, first .. " " .. table.concat(dead, " "), folder)
    local number, name, input
    for line in result.out:gmatch("[^\n]+") do
      local n, f, i = line:match("^call (%d+) (%S+)\t(.*)$")
      if n then
        number, name, input = tonumber(n), f, i
        calls[name] = (calls[name] or 0) + 1
      elseif line:match("^bad ") then
        found[name] = found[name] or {}
        table.insert(found[name], ("%s: %s"):format(input, line:sub(5)))
      end
    end
    if result.out:match("\ndone %d+\n$") then break end
    assert(number, "the child did not start: " .. result.err)
    found[name] = found[name] or {}
    table.insert(found[name], 1, ("%s: the process %s %s"):format(input,
      result.code == 137 and "hung or was killed" or "died with code " .. tostring(result.code), result.err:sub(-300)))
    dead[#dead + 1] = support.shell_quoted(name)
    first = number + 1
  end
  support.remove(top)
  return found, calls
end

for _, group in ipairs { "module", "native", "tensor", "objects" } do
  describe("hostile arguments, " .. group, function()
    local found, calls
    lazy_setup(function() found, calls = attack(group) end)

    for name in names_of(group) do
      it(("%s neither dies nor raises anything unreadable"):format(name), function()
        local findings = found[name] or {}
        if #findings > 0 then
          error(("%s: %d findings\n  %s"):format(name, #findings, table.concat(findings, "\n  ", 1, math.min(#findings, 4))), 0)
        end
        if name ~= "ms.run" then assert.is_true(calls[name] >= least_inputs, name .. " got " .. tostring(calls[name])) end
      end)
    end
  end)
end

--- Runs a chunk in a child that prints what it finds; a dead child fails the case.
local function child_prints(source)
  local result = support.run_lua("io.stdout:setvbuf('no') local ms = require 'moonshard' "
    .. "local native = package.loaded['moonshard.native'] " .. source,
    { seconds = 8, limit_kb = 8 * 1024 * 1024, folder = "/tmp" })
  assert.are.equal(0, result.code, "exit code, after: " .. result.out:sub(-200) .. result.err:sub(-300))
  return result.out
end

describe("known ways to kill it", function()
  it("a tensor of a thousand dimensions becomes a table or an error", function()
    child_prints [[
      local sizes = {}
      for i = 1, 1000 do sizes[i] = 1 end
      pcall(function() return ms.ones({ 1 }):reshape(sizes):tolist() end)
      pcall(function() return tostring(ms.ones({ 1 }):reshape(sizes)) end)]]
  end)

  it("a hundred thousand dimensions are refused or handled at once", function()
    child_prints [[
      local sizes = {}
      for i = 1, 100000 do sizes[i] = 1 end
      pcall(ms.zeros, sizes)
      pcall(function() return tostring(ms.ones({ 1 }):reshape(sizes)) end)]]
  end)

  it("tolist of a tensor with 2^40 empty rows is an error, not an endless loop", function()
    child_prints [[assert(not pcall(function() return ms.zeros({ 2 ^ 40, 0 }):tolist() end))]]
  end)

  it("endless recursion through ms.scope is an error", function()
    child_prints [[
      local function again() return ms.scope(again) end
      local ok, message = pcall(again)
      assert(not ok and type(message) == "string", "expected an error, got " .. tostring(message))
      assert(ms.ones({ 2 }):sum():item() == 2)]]
  end)

  it("endless recursion through an __index that calls back is an error", function()
    child_prints [[
      local t = setmetatable({}, { __index = function(t) return ms.data.synthetic(t) end })
      pcall(ms.data.synthetic, t)]]
  end)

  it("ms.scope returns a table full of references to itself at once", function()
    child_prints [[
      local t = {}
      for i = 1, 30 do t[i] = t end
      assert(ms.scope(function() return t end) == t)]]
  end)

  it("a misspelt name of a million letters is refused at once", function()
    child_prints [[
      local ok, message = pcall(native.nearest, ("x"):rep(1e5), { ("y"):rep(1e5) })
      assert(ok or not message:find("bad_alloc"), message)]]
  end)

  it("finalisers that call back into the module at exit do no harm", function()
    child_prints [[
      local guard = newproxy(true)
      getmetatable(guard).__gc = function() pcall(ms.zeros, { 2 }) pcall(tostring, ms.ones { 1 }) end
      t = ms.ones { 3 }]]
  end)

  it("a script that clears the globals it did not make does no harm", function()
    child_prints [[
      local t = ms.ones { 3 }
      for key in pairs(_G) do
        if key:match("^sol%.") or key:match("moonshard") then _G[key] = nil end
      end
      collectgarbage() collectgarbage()
      local junk = {}
      for i = 1, 1e5 do junk[i] = { i } end
      assert(t.shape[1] == 3)
      assert((t + ms.ones { 3 }):sum():item() == 6)
      local ok, message = pcall(function() return t.shpae end)
      assert(not ok and message:find("expected a field"), message)]]
  end)

  it("a script that forbids undeclared globals can use the module", function()
    child_prints [[
      local raise = function(_, key) error("undeclared " .. tostring(key), 2) end
      setmetatable(_G, { __index = raise, __newindex = raise })
      assert(ms.scope(function() return 3 end) == 3)
      local ok, message = pcall(ms.zeros, -1)
      assert(not ok and message:find("expected sizes >= 0"), message)
      native.launch.run({ "/bin/sleep", "0.15" }, "/dev/null", function() end)]]
  end)

  it("a script that forbids undeclared globals can load the module", function()
    local result = support.run_lua [[
      local raise = function(_, key) error("undeclared " .. tostring(key), 2) end
      setmetatable(_G, { __index = raise, __newindex = raise })
      local ms = require "moonshard"
      assert(ms.ones({ 2 }):sum():item() == 2)]]
    assert.are.equal(0, result.code, result.err)
  end)

  it("names that lead out of a run folder are refused", function()
    child_prints [[
      local top = os.tmpname()
      os.remove(top)
      local folder = native.records.create(top .. "/runs", "x")
      native.records.write_sweep(folder, { name = "x", axes = { "mode" }, points = {} })
      local function refused(name, ...) assert(not pcall(native.records[name], ...), name .. " wrote outside") end
      refused("write_status", folder, "../../..", "ok")
      refused("write_result", folder, "../../..", {})
      refused("write_file", folder, "../../escaped", "text")
      refused("create", top .. "/runs", "../escaped")
      os.execute("rm -rf " .. top)]]
  end)

  it("objects that outlive their coroutine work", function()
    child_prints [[
      local t
      coroutine.wrap(function() t = ms.scope(function() return ms.ones { 4 } end) end)()
      collectgarbage() collectgarbage()
      assert((t + 1):sum():item() == 8)]]
  end)

  it("a second require after package.loaded was cleared works", function()
    child_prints [[
      local old = ms.ones { 2 }
      package.loaded.moonshard = nil
      local again = require "moonshard"
      assert((again.ones { 2 } + old):sum():item() == 4)
      assert(old.shape[1] == 2)]]
  end)
end)

describe("errors in callbacks", function()
  local ms = require "moonshard"
  local launch = package.loaded["moonshard.native"].launch

  it("a text raised in ms.scope arrives once, with the position where it was raised", function()
    local ok, message = pcall(ms.scope, function() error("boom") end)
    assert.is_false(ok)
    assert.matches("misuse_spec%.lua:%d+: boom$", message)
    local _, count = message:gsub("misuse_spec%.lua", "")
    assert.are.equal(1, count, message)
  end)

  it("an error object raised in ms.scope arrives unchanged", function()
    local object = { code = 7 }
    local ok, raised = pcall(ms.scope, function() error(object) end)
    assert.is_false(ok)
    assert.are.equal(object, raised)
  end)

  it("error() without a value in ms.scope is no complaint about the stack", function()
    local ok, raised = pcall(ms.scope, function() error() end)
    assert.is_false(ok)
    assert.is_nil((tostring(raised):find("stack index", 1, true)))
  end)

  it("a text raised while a program runs arrives and ends the program", function()
    local folder = support.temporary_folder()
    local before = os.time()
    local ok, message = pcall(launch.run, { "/bin/sleep", "20" }, folder .. "/log", function() error("tick boom") end)
    support.remove(folder)
    assert.is_false(ok)
    assert.matches("tick boom", message)
    assert.is_true(os.time() - before < 5)
  end)

  it("an __index that raises is the caller's error, word for word", function()
    local hostile = setmetatable({}, { __index = function() error("index boom") end })
    for name, call in pairs { trainer = ms.trainer, synthetic = ms.data.synthetic } do
      local ok, message = pcall(call, hostile)
      if not ok then assert.are.equal("string", type(message), name .. " raised " .. tostring(message)) end
    end
  end)

  it("the state stays usable after every kind of error", function()
    pcall(ms.zeros, -1)
    pcall(ms.scope, error)
    pcall(ms.trainer, { model = 1 })
    pcall(ms.run, { no_such = 1 })
    assert.are.equal(6, ms.ones({ 2, 3 }):sum():item())
    assert.are.equal(3, ms.scope(function() return 3 end))
  end)
end)

describe("the position of an error", function()
  local ms = require "moonshard"
  local tensor = ms.ones { 2 }
  local here = "misuse_spec%.lua:"

  local function line_of(call)
    local ok, message = pcall(call)
    assert.is_false(ok)
    local line = tostring(message):match(here .. "(%d+): ")
    assert.is_not_nil(line, message)
    return tonumber(line) - debug.getinfo(call, "S").linedefined
  end

  it("is the caller's line for makers, methods, fields, options and operators", function()
    assert.are.equal(1, line_of(function()
      local _ = ms.zeros(-1) -- luacheck: ignore
    end))
    assert.are.equal(1, line_of(function()
      local _ = tensor:reshape("x") -- luacheck: ignore
    end))
    assert.are.equal(1, line_of(function()
      local _ = tensor.shpae -- luacheck: ignore
    end))
    assert.are.equal(1, line_of(function()
      ms.resolve { modle = "x" }
    end))
    assert.are.equal(1, line_of(function()
      local _ = tensor + "x" -- luacheck: ignore
    end))
  end)

  it("is the caller's line for the Lua library", function()
    assert.are.equal(1, line_of(function()
      ms.sweep { modle = "x" }
    end))
    assert.are.equal(1, line_of(function()
      ms.sweep { grid = { modle = { "x" } } }
    end))
    assert.are.equal(1, line_of(function()
      ms.sweep { grid = "x" }
    end))
    assert.are.equal(1, line_of(function()
      local _ = ms.load("a folder that is not there"), 1 -- luacheck: ignore
    end))
    assert.are.equal(1, line_of(function()
      local _ = ms.profile(nil), 1 -- luacheck: ignore
    end))
  end)

  it("tells obj.method() from obj:method()", function()
    local ok, message = pcall(function() return tensor.sum() end)
    assert.is_false(ok)
    assert.matches("Tensor:sum: argument 1: expected a Tensor %(call it with a colon", message)
  end)
end)
