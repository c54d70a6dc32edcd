--- Weights as Lua sees them: files, folders, configs, models. The readers themselves are tested in C++.
local ms = require "moonshard"
local support = require "tests.support.support"

local message_of = support.message_of

local config = [[{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 8,
  "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}]]

--- Tensors of all parameters of a model with these options, by name.
local function parameters_of(options)
  local model = ms.model("llama", options)
  local tensors = {}
  for _, name in ipairs(model.parameters) do tensors[name] = model:parameter(name) end
  return tensors
end

describe("ms.weights", function()
  local folder
  before_each(function() folder = support.temporary_folder() end)
  after_each(function() support.remove(folder) end)

  it("reads back what it saved, with names, metadata and numbers", function()
    local path = folder .. "/a.safetensors"
    ms.weights.save(path, { w = ms.tensor { { 1, 2 }, { 3, 4 } }, b = ms.arange(3, { dtype = "int64" }) }, { note = "first" })
    local weights = ms.weights.open(path)
    assert.are.same({ "b", "w" }, weights:names())
    assert.are.same({ { 1, 2 }, { 3, 4 } }, weights:tensor("w"):tolist())
    assert.are.equal("int64", weights:tensor("b").dtype)
    assert.are.same({ format = "pt", note = "first" }, weights.metadata)
    assert.are.equal(2, weights.count)
    assert.are.equal(path, weights.path)
    assert.are.equal("Weights " .. path .. " (2 tensors)", tostring(weights))
  end)

  it("close ends the object and not what was read", function()
    ms.weights.save(folder .. "/a.safetensors", { w = ms.ones { 2 } })
    local weights = ms.weights.open(folder .. "/a.safetensors")
    local w = weights:tensor "w"
    weights:close()
    assert.are.same({ 1, 1 }, w:tolist())
    assert.matches("expected open weights, got closed ones", message_of(function() return weights:names() end))
    assert.are.equal("Weights (closed)", tostring(weights))
  end)

  it("names what is wrong with the arguments of save", function()
    local path = folder .. "/a.safetensors"
    assert.matches("expected a Tensor for 'w', got a number", message_of(ms.weights.save, path, { w = 3 }))
    assert.matches("expected names as keys, got number", message_of(ms.weights.save, path, { ms.ones { 2 } }))
    assert.matches("expected texts as metadata, got number for 'epoch'", message_of(ms.weights.save, path, {}, { epoch = 3 }))
    assert.matches("expected a path that ends in %.safetensors, got 'a%.bin'", message_of(ms.weights.save, "a.bin", {}))
    local freed = ms.ones { 2 }
    freed:free()
    assert.matches("freed", message_of(ms.weights.save, path, { w = freed }))
    assert.is_false(support.exists(path))
  end)

  it("names tensors, fields and paths that are not there", function()
    ms.weights.save(folder .. "/a.safetensors", { weight = ms.ones { 2 } })
    local weights = ms.weights.open(folder .. "/a.safetensors")
    assert.matches("did you mean 'weight'%?", message_of(function() return weights:tensor "wieght" end))
    assert.matches("expected a field %(metadata, path, count%)", message_of(function() return weights.meta end))
    assert.matches("does not exist", message_of(ms.weights.open, folder .. "/b.safetensors"))
    local hint = message_of(ms.weights.open, "meta-llama/Llama-3.1-8B-Instruct")
    assert.matches("moonshard downloads nothing", hint)
    assert.matches("gated", hint)
    assert.matches("HF_TOKEN", hint)
  end)

  it("a damaged file is an error that names it", function()
    support.write(folder .. "/a.safetensors", "\255\255\255\255\255\255\255\255{}")
    assert.matches("a%.safetensors: expected a safetensors header of at most", message_of(ms.weights.open, folder .. "/a.safetensors"))
  end)

  it("config gives options that ms.model takes", function()
    support.write(folder .. "/config.json", config)
    local options = ms.weights.config(folder)
    assert.are.equal("llama", options.model)
    assert.are.equal("lm", options.task)
    assert.are.equal(8, options.hidden_dim)
    assert.are.equal(8, ms.model("llama", options).options.hidden_dim)
    support.write(folder .. "/config.json", (config:gsub('"llama"', '"mamba"')))
    assert.matches("config%.json: key 'model_type': expected llama, qwen2, gemma2, gemma3, gemma3_text, vaultgemma, dit or linear",
      message_of(ms.weights.config, folder))
  end)
end)

describe("ms.weights.load", function()
  local folder, tensors
  before_each(function()
    folder = support.temporary_folder()
    support.write(folder .. "/config.json", config)
    local options = ms.weights.config(folder)
    options.seed, options.device = 7, "cpu"
    tensors = parameters_of(options)
    ms.weights.save(folder .. "/model.safetensors", tensors)
  end)
  after_each(function() support.remove(folder) end)

  it("builds the model of a folder with its weights", function()
    local model = ms.weights.load(folder, { device = "cpu" })
    assert.are.equal("lm", model.options.task)
    assert.are.equal(folder, model.options.weights)
    for name, tensor in pairs(tensors) do assert.are.same(tensor:tolist(), model:parameter(name):tolist()) end
  end)

  it("options given by hand win over the config", function()
    local model = ms.weights.load(folder, { task = "classify", num_labels = 3, dtype = "float64", device = "cpu" })
    assert.are.same({ 3, 8 }, model:parameter("score.weight").shape)
    assert.are.equal("float64", model:parameter("model.norm.weight").dtype)
    assert.matches("unknown option 'num_lables'", message_of(ms.weights.load, folder, { num_lables = 3 }))
    local message = message_of(ms.weights.load, folder, { intermediate_dim = 32, device = "cpu" })
    assert.matches("expected tensors that fit model 'llama'", message)
  end)
end)
