--- Engines and rules of a script's own: registered, proven by ms.verify, refused by name when they are wrong.
-- What is registered belongs to the whole process: every case has a process of its own.
local support = require "tests.support.support"
local ms = require "moonshard"

local message_of = support.message_of

local prelude = [[
local ms = require "moonshard"
--- [B, …, d] -> [B, T, d]; two dimensions are one position.
local function as_positions(x) return x:reshape(x.shape[1], -1, x.shape[x.dims]) end
local function squares(x) return (x * x):reshape(x.shape[1], -1):sum(2) end
--- G^T A of every sample: the weight gradient of linear layers.
local function matrix(a, g) return as_positions(g):transpose():matmul(as_positions(a)) end
local function linear_norms(layer, a, g)
  local total = squares(matrix(a, g))
  if layer.has_bias then total = total + squares(as_positions(g):sum(2)) end
  return total
end
local function tiny_trainer(engine, options)
  return ms.trainer { model = ms.model("linear-tiny", { device = "cpu", dtype = "float64", hidden_dim = 8, num_layers = 2 }),
    clip = ms.clip(engine, options), optimizer = ms.optim.sgd { lr = 0.1 }, data = ms.data.synthetic { batch_size = 3 },
    privacy = engine ~= "none" and { secure = false } or nil }
end
local function failure_of(call, ...)
  local ok, message = pcall(call, ...)
  assert(not ok, "expected an error")
  return message
end
]]
local _, prelude_lines = prelude:gsub("\n", "")

--- Runs a chunk behind the prelude as a script of the program; what it prints.
local function script(source, seconds)
  local folder = support.temporary_folder()
  support.write(folder .. "/script.lua", prelude .. source)
  local result = support.run(support.shell_quoted(support.program()) .. " run script.lua", { folder = folder, seconds = seconds })
  support.remove(folder)
  assert.are.equal(0, result.code, result.out .. result.err)
  return result.out
end

describe("ms.register_engine", function()
  it("an engine whose norms are tensor operations holds in every way to train, kept inputs or a second pass", function()
    local out = script [[
      for _, keep in ipairs { "inputs", "nothing" } do
        ms.register_engine("by_hand", { norms = linear_norms, keep = keep, doc = "norms in Lua" })
        local ways = {}
        for _, cell in ipairs(ms.verify { engine = "by_hand", model = "linear-tiny", dtype = "float64" }.cells) do
          -- A norms function that counts all biases is wrong where some are frozen: see the next case.
          if cell.options ~= "frozen" and cell.options ~= "trained_few" then
            assert(cell.engine == "by_hand" and cell.ok, cell.options .. ": " .. tostring(cell.max_rel_err) .. " " .. cell.worst)
            ways[cell.options] = true
          end
        end
        for _, way in ipairs { "default", "noise", "accumulation", "per_layer", "automatic", "adaptive", "batch_of_1" } do
          assert(ways[way], way)
        end
        print(keep .. " holds")
      end]]
    assert.are.equal("inputs holds\nnothing holds\n", out)
  end)

  it("an engine can tell which parameters of a layer are trained, and holds with frozen ones", function()
    script [[
      ms.register_engine("by_hand", { norms = function(layer, a, g)
        local total = ms.zeros({ g.shape[1] }, { dtype = "float64" })
        if layer.trains_weight then total = total + squares(matrix(a, g)) end
        if layer.trains_bias then total = total + squares(as_positions(g):sum(2)) end
        return total
      end })
      local report = ms.verify { engine = "by_hand", model = "linear-tiny", dtype = "float64" }
      for _, cell in ipairs(report.cells) do assert(cell.ok, cell.options .. ": " .. cell.worst) end
      assert(report.failed == 0)]]
  end)

  it("it gets every layer with its kind, shape, bias and padding id, and inputs that fit", function()
    local out = script [[
      ms.register_engine("looks", { norms = function(layer, a, g)
        print(layer.name, layer.kind, table.concat(layer.weight_shape, "x"), layer.has_bias, layer.padding_id, a and a.dims, g.dims)
        return ms.ones { g.shape[1] }
      end })
      ms.trainer { model = ms.model("dit-tiny", { device = "cpu", num_layers = 1 }), clip = ms.clip "looks",
        data = ms.data.synthetic { batch_size = 2 } }:step()
      ms.trainer { model = ms.model("llama3-tiny", { device = "cpu", num_layers = 1, pad_token_id = 3 }), clip = ms.clip "looks",
        data = ms.data.synthetic { batch_size = 2, seq_length = 4 } }:step()]]
    for _, line in ipairs {
      "x_embedder.proj\tpatch_embedding\t64x3x4x4\ttrue\t-1\t3\t3",
      "pos_embed\tposition_table\t1x64x64\tfalse\t-1\tnil\t3",
      "y_embedder.embedding_table\tembedding\t11x64\tfalse\t-1\t1\t2",
      "t_embedder.mlp.2\tlinear\t64x64\ttrue\t-1\t2\t2",
      "model.embed_tokens\tembedding\t1024x128\tfalse\t3\t2\t3",
      "model.norm\trms_norm\t128\tfalse\t-1\t3\t3",
    } do
      assert.matches(line .. "\n", out, 1, true)
    end
  end)

  it("it is listed, trains like a built-in one, and is gone when it is taken away", function()
    script [[
      ms.register_engine("by_hand", { norms = linear_norms, doc = "norms in Lua" })
      local listed
      for _, engine in ipairs(ms.engines()) do if engine.name == "by_hand" then listed = engine end end
      assert(listed.private and listed.doc == "norms in Lua")
      local mine, theirs = tiny_trainer("by_hand"), tiny_trainer("materialize")
      assert(mine.engine == "by_hand" and mine.private)
      for _ = 1, 3 do
        local one, other = mine:step(), theirs:step()
        assert(math.abs(one.loss - other.loss) < 1e-12)
        for i, norm in ipairs(one.norms) do assert(math.abs(norm - other.norms[i]) < 1e-12) end
      end
      assert(ms.run { model = "linear-tiny", hidden_dim = 8, num_layers = 1, mode = "by_hand", device = "cpu" }.status == "ok")
      ms.register_engine("by_hand", false)
      assert(failure_of(ms.clip, "by_hand"):find("expected one of none, materialize", 1, true))
      mine:step() -- what was made before stays whole]]
  end)

  it("a wrong one is found by ms.verify, with what is off", function()
    script [[
      ms.register_engine("no_bias", { norms = function(_, a, g) return squares(matrix(a, g)) end })
      local report = ms.verify { engine = "no_bias", model = "linear-tiny", dtype = "float64", options = "default" }
      assert(report.failed == #report.cells and report.failed > 0)
      for _, cell in ipairs(report.cells) do
        assert(not cell.ok and cell.worst == "norm" and cell.max_rel_err > 1e-4, cell.worst)
      end]]
  end)

  it("an error inside the function carries the layer's name and the Lua text with its line", function()
    local out = script [[
      ms.register_engine("broken", { norms = function() error("no idea") end })
      print(failure_of(function() return tiny_trainer("broken"):step() end))
      local report = ms.verify { engine = "broken", model = "linear-tiny", dtype = "float64", options = "default" }
      assert(report.failed == #report.cells)
      print(report.cells[1].error)]]
    local wanted = ("engine broken: layer 'layers.1': script.lua:%d: no idea\n"):format(prelude_lines + 1)
    assert.matches(wanted, out, 1, true)
    assert.matches("engine broken: layer 'layers.3': script.lua:", out, 1, true)
  end)

  it("a result that is no tensor of one number per sample is refused with the layer's name", function()
    local out = script [[
      for _, result in ipairs { function() return 5 end, function() end, function(_, _, g) return g end, function() error({}) end } do
        ms.register_engine("wrong", { norms = result })
        print(failure_of(function() return tiny_trainer("wrong"):step() end))
      end]]
    assert.are.same({
      "engine wrong: layer 'layers.1': expected a Tensor as result, got a number",
      "engine wrong: layer 'layers.1': expected a Tensor as result, got a nil",
      "privacy.wrong: layer 'layers.1': expected squared norms [3], got [3, 8]",
      "engine wrong: layer 'layers.1': raised a value that is no text",
    }, { out:match("(.-)\n(.-)\n(.-)\n(.-)\n") })
  end)

  it("the trainer works again after a step that failed in the function", function()
    script [[
      local fails = true
      ms.register_engine("moody", { norms = function(layer, a, g)
        if fails and layer.name == "layers.0" then error("not today") end
        return linear_norms(layer, a, g)
      end })
      local mine = tiny_trainer "moody"
      local before = mine.model:parameter("layers.1.weight"):clone()
      failure_of(function() return mine:step() end)
      assert((mine.model:parameter("layers.1.weight") - before):abs():max():item() == 0, "half a step was taken")
      fails = false
      local report = mine:step()
      assert(report.step == 1 and #report.norms == 3)
      assert((mine.model:parameter("layers.1.weight") - before):abs():max():item() > 0)]]
  end)

  it("mistakes in its arguments are named", function()
    local norms = function() end
    assert.matches("expected a new name, got 'ghost', which is built in", message_of(ms.register_engine, "ghost", { norms = norms }))
    assert.matches("expected a new name, got 'no_dp', which is built in", message_of(ms.register_engine, "no_dp", { norms = norms }))
    assert.matches("expected an engine that was registered, got 'ghost'", message_of(ms.register_engine, "ghost", false))
    assert.matches("unknown option 'norm'; did you mean 'norms'?", message_of(ms.register_engine, "x", { norm = norms }), 1, true)
    assert.matches("option 'norms': expected a function, got a number", message_of(ms.register_engine, "x", { norms = 5 }))
    assert.matches("option 'norms': expected a function .*, got nothing", message_of(ms.register_engine, "x", {}))
    assert.matches("option 'keep': expected inputs or nothing .*, got 'all'",
      message_of(ms.register_engine, "x", { norms = norms, keep = "all" }))
    assert.matches("argument 2: expected a table", message_of(ms.register_engine, "x", true))
    assert.matches("argument 1: expected a text %(name%), got 5", message_of(ms.register_engine, 5, { norms = norms }))
  end)

  it("a keep or a doc that is no text is refused, not taken for the default", function()
    script [[
      for _, value in ipairs { true, 5, {} } do
        assert(failure_of(ms.register_engine, "x", { norms = linear_norms, keep = value }):find("option 'keep'", 1, true))
        assert(failure_of(ms.register_engine, "x", { norms = linear_norms, doc = value }):find("option 'doc'", 1, true))
      end]]
  end)

  it("an __index that raises does no harm", function()
    script [[
      local hostile = setmetatable({ norms = linear_norms }, { __index = function() error("index boom") end })
      local ok, message = pcall(ms.register_engine, "x", hostile)
      assert(ok or type(message) == "string", "raised a " .. type(message))]]
  end)
end)

describe("ms.register_rule", function()
  it("the built-in kinds have rules", function()
    assert.are.same({ "embedding", "layer_norm", "linear", "patch_embedding", "position_table", "rms_norm" }, ms.rules())
  end)

  it("without its rule a layer is named with what can be done, and freezing it is enough", function()
    local out = script [[
      ms.register_rule("rms_norm", false)
      assert(not (" " .. table.concat(ms.rules(), " ") .. " "):find(" rms_norm ", 1, true))
      local model = ms.model("llama3-tiny", { device = "cpu", num_layers = 1 })
      local function step(engine)
        return ms.trainer { model = model, clip = ms.clip(engine), data = ms.data.synthetic { batch_size = 2, seq_length = 4 } }:step()
      end
      for _, engine in ipairs { "materialize", "flash", "auto" } do print(failure_of(step, engine)) end
      model:freeze "*norm.weight"
      assert(#step("auto").norms == 2)]]
    local wanted = "privacy: layer 'model.layers.0.input_layernorm' has no norm rule (kind rms_norm); register one (register_rule in C++, "
      .. "ms.register_rule in Lua) or freeze the layer; kinds with a rule: embedding, layer_norm, linear, patch_embedding, position_table\n"
    assert.are.equal(wanted:rep(3), out)
  end)

  it("a rule in Lua for rms_norm makes every engine hold again", function()
    script([[
      ms.register_rule("rms_norm", false)
      local way = { model = "llama3.2-tiny", dtype = "float64", options = "accumulation" }
      assert(ms.verify(way).failed > 0)
      local calls = 0
      ms.register_rule("rms_norm", { per_sample = function(_, a, g)
        calls = calls + 1
        return (as_positions(a) * as_positions(g)):sum(2)
      end })
      local report = ms.verify(way)
      for _, cell in ipairs(report.cells) do assert(cell.ok, cell.engine .. " " .. cell.layer .. ": " .. (cell.error or cell.worst)) end
      assert(report.failed == 0 and calls > 0)]], 120)
  end)

  it("squares of its own are used by engines that keep no gradients, and must be right", function()
    script [[
      local scale = 1
      ms.register_rule("linear", {
        per_sample = function(_, a, g) return matrix(a, g) end,
        squares = function(_, a, g) return squares(matrix(a, g)) * scale end,
      })
      local function failed(engine)
        return ms.verify { model = "linear-tiny", dtype = "float64", options = "default", engine = engine }.failed
      end
      assert(failed("materialize") == 0 and failed("flash") == 0 and failed("bookkeeping") == 0)
      scale = 1.001
      assert(failed("materialize") == 0 and failed("flash") > 0 and failed("bookkeeping") > 0)]]
  end)

  it("a wrong gradient is found by ms.verify; a wrong shape and an error name kind and layer", function()
    local out = script [[
      local way = { model = "linear-tiny", dtype = "float64", options = "default", engine = "flash_bookkeeping" }
      ms.register_rule("linear", { per_sample = function(_, a, g) return matrix(a, g) * 2 end })
      assert(ms.verify(way).failed > 0)
      for _, result in ipairs { function(_, _, g) return g end, function() error("no idea") end, function() return "x" end } do
        ms.register_rule("linear", { per_sample = result })
        print(failure_of(function() return tiny_trainer("materialize"):step() end))
      end]]
    assert.matches("rule of kind linear, layer 'layers.1': expected per-sample gradients of shape [3, 8, 8], got [3, 8]\n", out, 1, true)
    assert.matches("rule of kind linear: layer 'layers.1': script.lua:%d+: no idea\n", out)
    assert.matches("rule of kind linear: layer 'layers.1': expected a Tensor as result, got a string\n", out, 1, true)
  end)

  it("mistakes in its arguments are named", function()
    assert.matches("unknown option 'per_smple'; did you mean 'per_sample'%?", message_of(ms.register_rule, "x", { per_smple = print }))
    assert.matches("option 'per_sample': expected a function .*, got nothing", message_of(ms.register_rule, "x", { squares = print }))
    assert.matches("option 'squares': expected a function, got a string", message_of(ms.register_rule, "x", { squares = "x" }))
    assert.matches("expected a kind's name, got an empty one", message_of(ms.register_rule, "", { per_sample = print }))
  end)
end)

describe("ms.verify", function()
  it("gives cells with their names, errors and tolerance", function()
    local report = ms.verify { model = "linear-tiny", engine = "flash_clip", options = "accumulation", device = "cpu" }
    assert.are.equal(0, report.failed)
    local formats = {}
    for _, cell in ipairs(report.cells) do
      assert.are.same({ "dtype", "engine", "layer", "max_rel_err", "model", "ok", "options", "task", "tolerance", "worst" },
        support.keys(cell))
      assert.are.equal("flash", cell.engine) -- by its other name
      assert.are.equal("accumulation", cell.options)
      assert.is_true(cell.ok and cell.max_rel_err <= cell.tolerance)
      formats[cell.dtype] = cell.tolerance
    end
    assert.are.same({ float64 = 1e-10, float32 = 1e-5, bfloat16 = 1e-3 }, formats)
  end)

  it("another seed is another draw that holds as well", function()
    local function errors(seed)
      local report = ms.verify { model = "linear-tiny", engine = "ghost", options = "default", dtype = "float32", seed = seed }
      assert.are.equal(0, report.failed)
      return report.cells[1].max_rel_err
    end
    assert.are.equal(errors(1), errors(1))
    assert.are_not.equal(errors(1), errors(2))
  end)

  it("unknown names are refused with the nearest", function()
    assert.matches("unknown option 'engnie'; did you mean 'engine'?", message_of(ms.verify, { engnie = "x" }), 1, true)
    assert.matches("option 'engine': expected one of none, .*, got 'gohst'; did you mean 'ghost'%?",
      message_of(ms.verify, { engine = "gohst" }))
    assert.matches("option 'options': expected one of default, .*, got 'acumulation'; did you mean 'accumulation'%?",
      message_of(ms.verify, { options = "acumulation" }))
    assert.matches("option 'dtype': expected one of float64, float32, bfloat16, got 'half'", message_of(ms.verify, { dtype = "half" }))
    assert.matches("got 'linear%-tyni'; did you mean 'linear%-tiny'%?", message_of(ms.verify, { model = "linear-tyni" }))
  end)

  it("options that leave no cell are an error: nothing was proven", function()
    assert.matches("expected options that name at least one cell, got none",
      message_of(ms.verify, { model = "linear-tiny", options = "padding", dtype = "float64" }))
  end)
end)
