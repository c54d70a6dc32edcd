--- Options are sets: what means nothing to the chosen model or wrapper is refused with the reason, and tables of
-- effective options that the program wrote are taken again.
local ms = require "moonshard"
local support = require "tests.support.support"

local message_of = support.message_of

describe("options of another family", function()
  it("are refused by ms.model, ms.run, ms.resolve and ms.sweep", function()
    local reason = "model: option 'qkv_bias' means nothing to model dit-tiny (family dit: takes image_size, patch_size, "
    assert.matches(reason, message_of(ms.model, "dit-tiny", { qkv_bias = true }), 1, true)
    assert.matches(reason, message_of(ms.run, { model = "dit-tiny", qkv_bias = true }), 1, true)
    assert.matches(reason, message_of(ms.resolve, { model = "dit-tiny", qkv_bias = true }), 1, true)
    assert.matches(reason, message_of(ms.sweep, { model = "dit-tiny", grid = { qkv_bias = { "yes" } } }), 1, true)
    assert.matches("option 'image_size' means nothing to model llama3-tiny",
      message_of(ms.model, "llama3-tiny", { image_size = 64 }), 1, true)
  end)

  it("may be shared by the points of a sweep whose models take them", function()
    local sweep = ms.sweep { image_size = 64, device = "cpu", grid = { model = { "dit-tiny", "dit-xl-tiny" } } }
    assert.are.equal(2, #sweep.points)
    assert.are.equal(64, sweep.points[2].options.image_size)
  end)

  it("seq_length and batch_size mean something everywhere", function()
    assert.are.equal(64, ms.resolve({ model = "dit-tiny", seq_length = 512, batch_size = 3, device = "cpu" }).options.seq_length)
    assert.are.equal(512, ms.resolve({ model = "linear-tiny", seq_length = 512, device = "cpu" }).options.seq_length)
  end)
end)

describe("options of another wrapper", function()
  it("are refused by ms.ddp, ms.fsdp, ms.trainer and ms.resolve", function()
    assert.matches("parallel: option 'sharding' means nothing to parallel = ddp "
      .. "(takes reduce_dtype, no_sync, bucket_mb, unit_policies); leave it out",
      message_of(ms.ddp, { sharding = "zero2" }), 1, true)
    assert.matches("option 'bucket_mb' means nothing to parallel = fsdp", message_of(ms.fsdp, { bucket_mb = 1 }), 1, true)
    assert.matches("option 'wrap' means nothing to parallel = none", message_of(ms.resolve, { wrap = "none" }), 1, true)
    assert.matches("option 'backward_prefetch' means nothing to parallel = ddp",
      message_of(ms.resolve, { parallel = "ddp", backward_prefetch = "post" }), 1, true)
    local parallel = ms.fsdp { sharding = "zero2" }
    parallel.parallel = "ddp"
    assert.matches("option 'sharding' means nothing to parallel = ddp",
      message_of(ms.trainer, { model = ms.model("linear-tiny", { hidden_dim = 8, device = "cpu" }), parallel = parallel }), 1, true)
  end)
end)

describe("effective options", function()
  it("of every preset and wrapper resolve to themselves", function()
    for _, preset in ipairs(ms.models()) do
      for _, parallel in ipairs { "none", "ddp", "fsdp" } do
        local first = ms.resolve { model = preset.name, parallel = parallel, device = "cpu" }
        local again = ms.resolve(first.options)
        assert.are.same(first.options, again.options)
        assert.are.equal(first.id, again.id)
      end
    end
  end)

  it("of a model build the same model", function()
    for _, name in ipairs { "dit-tiny", "linear-tiny", "qwen2.5-tiny" } do
      local model = ms.model(name, { device = "cpu" })
      assert.are.same(model.options, ms.model(name, model.options).options)
    end
  end)

  it("of a sweep's points are read back and run", function()
    local folder = support.temporary_folder()
    local runs = ms.sweep { model = "dit-tiny", out = folder, device = "cpu", iters = 1, warmup = 0, profile = "off", threads = 1,
      grid = { mode = { "none" } } }:run()
    local record = ms.load(runs.path).points[1]
    support.remove(folder)
    assert.are.equal("ok", record.status)
    assert.are.equal(record.id, ms.resolve(record.options).id)
  end)
end)
