--- The module's account of itself: everything is documented, has an example that runs, and the generated pages say the same.
local support = require "tests.support.support"
local ms = require "moonshard"
local lists = require "moonshard.lists"
local reference = require "moonshard.reference"
local examples = require "moonshard.reference.examples"

local function public(kind)
  return lists.column(lists.select(reference.entries(), function(entry) return entry.kind == kind end), "name")
end

-- "a…c" as a pattern for the whole of a line.
local function pattern_of(text)
  local escaped = text:gsub("[%^%$%(%)%%%.%[%]%*%+%-%?]", "%%%0")
  return "^" .. escaped:gsub("…", ".-") .. "$"
end

describe("documentation", function()
  it("covers every member of ms and of its groups", function()
    local without = {}
    local function visit(owner, name)
      for key, value in pairs(owner) do
        local full = name .. "." .. key
        if not (ms.doc_of(value) or ms.doc_of(full)) then without[#without + 1] = full end
        if type(value) == "table" and name == "ms" then visit(value, full) end
      end
    end
    visit(ms, "ms")
    assert.are.same({}, without)
  end)

  it("covers every method of the types that are written in Lua, and none that is gone", function()
    for _, each in ipairs(reference.types) do
      local class = each.module and require(each.module).class
      local documented = lists.set(lists.map(each.methods or {}, function(method) return method[1] end))
      for name, value in pairs(class or {}) do
        if type(value) == "function" and not name:find("^__") then assert.is_true(documented[name], each.name .. ":" .. name) end
      end
      for name in pairs(class and documented or {}) do assert.is_function(class[name], each.name .. ":" .. name) end
    end
  end)

  it("covers the fields that native objects offer to completion", function()
    local model = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" })
    for name, object in pairs { Tensor = ms.zeros { 1 }, Model = model, Trainer = ms.trainer { model = model } } do
      for _, member in ipairs(debug.getmetatable(object).__members) do
        local doc = ms.doc_of(("%s.%s"):format(name, member)) or type(object[member]) == "function" and ms.doc_of(object[member])
        assert.is_truthy(doc, name .. "." .. member)
      end
    end
  end)

  it("knows the options of sweeps", function()
    local sweep = require "moonshard.sweep"
    local function names(of)
      local list = lists.column(reference.options.of(of, true), "name")
      table.sort(list)
      return list
    end
    assert.are.same(sweep.run_options, names "Sweep:run")
    assert.are.same(sweep.own_options, names "ms.sweep")
  end)
end)

describe("generated pages", function()
  -- Made in a process of their own: other specs of this one may have registered engines.
  local function made(script)
    local result = support.run(("exec %s run %s/scripts/docs/%s.lua"):format(support.shell_quoted(support.program()),
      support.shell_quoted(support.root()), script))
    assert.are.equal(0, result.code, result.err)
    return result.out
  end

  it("docs/reference.md is what the module says, word for word", function()
    assert.are.equal(made "reference", support.read(support.root() .. "/docs/reference.md"))
  end)

  it("scripts/meta/moonshard.lua is what the module says, word for word, and is Lua", function()
    local text = made "meta"
    assert.are.equal(text, support.read(support.root() .. "/scripts/meta/moonshard.lua"))
    assert.is_function(load(text, "=meta"))
  end)

  it("name every option with its type and default", function()
    local page = support.read(support.root() .. "/docs/reference.md")
    for _, option in ipairs(ms.options()) do assert.is_truthy(page:find(("| `%s` |"):format(option.name), 1, true), option.name) end
  end)

  it("annotate choices as literals, parts as classes and results as types", function()
    local meta = support.read(support.root() .. "/scripts/meta/moonshard.lua")
    assert.is_truthy(meta:find('---@field mode? "none"|"materialize"|', 1, true))
    assert.is_truthy(meta:find("---@field clip? table", 1, true))
    assert.is_truthy(meta:find("---@return Trainer", 1, true))
    assert.is_nil(meta:find("unknown", 1, true))
  end)
end)

describe("unknown members", function()
  it("of ms and its groups are errors with the nearest name, at the caller's line", function()
    local ok, message = pcall(function() return ms.modle end)
    assert.is_false(ok)
    assert.matches("reference_spec.lua:%d+: ms: expected a member, got 'modle'; did you mean 'model'%?", message)
    ok, message = pcall(function() return ms.optim.adamm end)
    assert.is_false(ok)
    assert.matches("ms.optim: expected a member, got 'adamm'; did you mean 'adam", message)
    assert.is_nil(rawget(ms, "modle"))
  end)
end)

describe("lists of the module", function()
  it("print as tables and stay plain lists", function()
    assert.matches("llama3%-tiny +classify", tostring(ms.models()))
    assert.matches("ghost +yes", tostring(ms.engines()))
    assert.matches("seq_length +int +0 +tokens per sample", tostring(ms.options()))
    assert.matches("option seq_length of .*ms.run", ms.search("seq_length")[1].name)
    local result = ms.run { model = "linear-tiny", hidden_dim = 8, device = "cpu", iters = 2 }
    assert.matches("status +ok", tostring(result))
    assert.matches("step +[%d.]+ ms +IQR [%d.]+ ms, 2 steps", tostring(result))
    assert.has_error(function() ms.search(3) end, 'ms.search: expected a part of a name or a meaning, got 3; write ms.search "epsilon"')
  end)
end)

describe("examples", function()
  local folder

  setup(function()
    folder = support.temporary_folder()
    assert(os.execute(("mkdir -p %s/corpus"):format(folder)) == 0)
    support.write(folder .. "/snapshot.pickle", support.read(support.root() .. "/tests/data/viewer/snapshot_protocol4.pickle"))
    support.write(folder .. "/corpus/a.txt", ("To be or not to be, that is the question.\n"):rep(8))
    support.write(folder .. "/reviews.jsonl", ('{"text": "good", "label": "yes"}\n{"text": "bad", "label": "no"}\n'):rep(2))
  end)
  teardown(function() support.remove(folder) end)

  it("exist for every function and method, and for nothing else", function()
    local wanted = lists.set(lists.extend(public "function", public "method"))
    for name in pairs(wanted) do assert.is_string(examples[name], "no example of " .. name) end
    for name in pairs(examples) do assert.is_true(name == "prelude" or wanted[name], "an example of nothing: " .. name) end
  end)

  -- One child runs all of them: it may change its folder, and a crash is a failed case.
  it("run on a CPU and print what they say", function()
    local child = support.root() .. "/tests/scripts/reference_child.lua"
    local result = support.run(("exec %s run %s"):format(support.shell_quoted(support.program()), support.shell_quoted(child)),
      { folder = folder, seconds = 240 })
    assert.are.equal(0, result.code, result.out .. result.err)
    local failures = {}
    for name, said in support.read(folder .. "/said.txt"):gmatch("\1([^\n]+)\n([^\1]*)") do
      local lines, expected = lists.matches(said, "([^\n]*)\n"), lists.matches(examples[name], "%-%->[ ]?([^\n]*)")
      local good = #lines == #expected
      for i, text in ipairs(expected) do good = good and lines[i]:find(pattern_of(text)) ~= nil end
      if not good then failures[#failures + 1] = ("%s: expected %s\n  got %s"):format(name, table.concat(expected, " | "), said) end
    end
    assert.are.equal("", table.concat(failures, "\n"))
  end)
end)
