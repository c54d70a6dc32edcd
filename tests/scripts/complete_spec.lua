local complete = require "moonshard.complete"

-- A stand-in for the native module: same shape, no native code.
local function fake_module()
  local ms = { optim = { adamw = function() end, sgd = function() end }, version = "0" }
  function ms.run() end
  function ms.model() end
  function ms.sweep() end
  local names = { [ms.run] = "ms.run", [ms.model] = "ms.model", [ms.sweep] = "ms.sweep" }
  function ms.doc_of(value)
    if value == "Tensor.shape" then return { name = value } end
    return names[value] and { name = names[value] }
  end
  local shared = { { name = "batch_size" }, { name = "backward_prefetch" }, { name = "model" },
    { name = "mode", choices = { "none", "ghost", "ghost_too" } } }
  local options = { ["ms.run"] = shared, ["ms.model"] = shared, ["ms.sweep"] = { { name = "grid" }, { name = "growing" } },
    ["ms.run.inner"] = { { name = "inside" } } }
  function ms.options_of(name) return options[name] end
  function ms.values_of(name) return (name == "ms.model" or name == "model") and { "llama3-tiny", "linear-tiny" } or nil end
  return ms
end

local function fake_userdata(meta)
  local value = newproxy(true)
  for key, field in pairs(meta) do debug.getmetatable(value)[key] = field end
  return value
end

describe("complete.candidates", function()
  local env, context

  before_each(function()
    local ms = fake_module()
    local t = { alpha_one = 1, alpha_two = function() end, ["no name"] = 1 }
    env = setmetatable({ ms = ms, t = t }, { __index = _G })
    context = {
      env = env, module = ms, commands = { "%time", "%timeit", ".save" },
      list_dir = function(path)
        if path == "." then return { "data/", "demo.lua", ".hidden" } end
        return path == "data/" and { "train.txt", "test.txt" } or {}
      end,
    }
  end)

  local function words(text)
    return (complete.candidates(text, context))
  end

  it("offers fields after a dot", function()
    assert.same({ "alpha_one", "alpha_two" }, words("t.al"))
    assert.same({ "adamw" }, words("print(ms.optim.ad"))
  end)

  it("offers only functions after a colon", function()
    assert.same({ "alpha_two" }, words("t:al"))
  end)

  it("follows literal indices", function()
    env.list = { { inner_field = 1 } }
    env.map = { ["a b"] = { other_field = 1 } }
    assert.same({ "inner_field" }, words("list[1].in"))
    assert.same({ "other_field" }, words('map["a b"].o'))
  end)

  it("offers methods of strings", function()
    assert.same({ "upper" }, words('("x"):up'))
    env.name = "text"
    assert.same({ "upper" }, words("name:up"))
  end)

  it("follows __index tables but never calls an __index function of the user", function()
    local called = false
    env.object = setmetatable({}, { __index = { step_once = function() end } })
    env.trap = setmetatable({}, { __index = function() called = true return {} end })
    assert.same({ "step_once" }, words("object:st"))
    assert.same({}, words("trap.field."))
    assert.same({}, words("trap.x"))
    assert.is_false(called)
  end)

  it("offers what a userdata lists in __members", function()
    env.tensor = fake_userdata {
      __members = { "shape", "sum" }, __index = function() error("run") end,
    }
    assert.same({ "shape", "sum" }, words("tensor."))
    assert.same({ "sum" }, words("tensor:su"))
    debug.getmetatable(env.tensor).__metatable = "Tensor"
    assert.same({ "shape", "sum" }, words("tensor."))
    assert.same({ "sum" }, words("tensor:"))
  end)

  it("offers methods from a userdata's __index table", function()
    env.tensor = fake_userdata { __index = { reshape = function() end } }
    assert.same({ "reshape" }, words("tensor:re"))
  end)

  it("survives loops of __index tables", function()
    local a, b = {}, {}
    setmetatable(a, { __index = b })
    setmetatable(b, { __index = a })
    env.ring = a
    assert.same({}, words("ring.x"))
  end)

  it("offers keywords and globals", function()
    assert.same({ "while" }, words("whi"))
    assert.same({ "setmetatable" }, words("x = setm"))
  end)

  it("offers options in the table argument of a call into the module", function()
    assert.same({ "backward_prefetch", "batch_size" }, words("ms.run{ ba"))
    assert.same({ "backward_prefetch", "batch_size" }, words("ms.run({ ba"))
    assert.same({ "mode", "model" }, words('ms.model("llama3-tiny", { mode'))
    assert.same({ "batch_size" }, words("ms.run{ mode = 1,\n  bat"))
    assert.same({ "grid" }, words("ms.sweep{ gri"))
    assert.same({ "batch_size" }, words("ms.sweep{ grid = { bat"))
    assert.same({ "inside" }, words("ms.run{ inner = { in"))
  end)

  it("offers options when the function has another name", function()
    env.go = context.module.run
    assert.same({ "batch_size" }, words("go{ bat"))
  end)

  it("leaves out options that are already set", function()
    assert.same({ "backward_prefetch" }, words("ms.run{ batch_size = 2, ba"))
  end)

  it("offers no options where a value is expected or the call is not ours", function()
    assert.same({}, words("ms.run{ mode = batch"))
    assert.same({}, words("print{ batch"))
  end)

  it("works without options_of", function()
    context.module.options_of = nil
    assert.same({}, words("ms.run{ batch"))
    assert.same({}, words('ms.run{ mode = "gh'))
  end)

  it("knows what a call into the module gives, without running it", function()
    context.result_of = function(name) return name == "ms.sweep" and "Sweep" or nil end
    context.members_of = function(_, methods_only) return { run = true, points = not methods_only or nil } end
    assert.same({ "run" }, words("ms.sweep{ grid = { 1 } }:"))
    assert.same({ "points", "run" }, words("ms.sweep({ grid = f(1) })."))
    assert.same({}, words("print{}:"))
    local options_of = context.module.options_of
    context.module.options_of = function(name) return name == "Sweep:run" and { { name = "resume" } } or options_of(name) end
    assert.same({ "resume" }, words("ms.sweep{ grid = {} }:run{ re"))
  end)

  it("offers the values of an option and of an argument", function()
    assert.same({ "ghost", "ghost_too" }, words('ms.run{ mode = "gh'))
    assert.same({ "none" }, words('ms.run{ batch_size = 2, mode = "n'))
    assert.same({ "ghost", "ghost_too" }, words('ms.sweep{ grid = { mode = { "none", "gh'))
    assert.same({ "llama3-tiny" }, words('ms.model("lla'))
    assert.same({ "llama3-tiny" }, words('ms.model "lla'))
    assert.same({ "linear-tiny" }, words("ms.run{ model = 'lin"))
    assert.same({ "demo.lua" }, words('ms.model("de'))
  end)

  it("completes file names inside strings", function()
    assert.same({ "data/", "demo.lua" }, words('io.open("d'))
    assert.same({ "data/test.txt", "data/train.txt" }, words("io.open('data/t"))
    assert.same({ ".hidden" }, words('io.open(".h'))
  end)

  it("completes names inside help strings", function()
    assert.same({ "adamw" }, words('help "ms.optim.ad'))
    assert.same({ "optim", "options_of" }, words('help("ms.opt'))
  end)

  it("completes commands and their arguments", function()
    assert.same({ "%time", "%timeit" }, words("%ti"))
    assert.same({ "demo.lua" }, words(".save de"))
    assert.same({ "adamw" }, words("?ms.optim.a"))
    assert.same({ "adamw" }, words("%time ms.optim.a"))
  end)

  it("offers nothing in comments", function()
    assert.same({}, words("-- t.al"))
  end)

  it("does not evaluate calls", function()
    local called = false
    env.f = function() called = true return { x = 1 } end
    assert.same({}, words("f()."))
    assert.is_false(called)
  end)
end)

describe("complete.columns", function()
  it("reads downwards and stays within the width", function()
    assert.equal("a  c\nb  d", complete.columns({ "a", "b", "c", "d" }, 6))
  end)
end)

describe("complete.common_prefix", function()
  it("is the longest beginning of all words", function()
    assert.equal("ba", complete.common_prefix { "batch", "backward" })
    assert.equal("", complete.common_prefix {})
  end)
end)
