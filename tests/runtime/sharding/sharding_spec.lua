--- What real ranks hold and in which order they do things. That what they compute is right is moonshard verify --nproc's.
local support = require "tests.support.support"

local quoted = support.shell_quoted(support.program())
local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local function on_ranks(ranks, text) return support.on_ranks(folder, ranks, text, 120) end

local holding = [[


local record = ms.run { model = "linear-tiny", device = "cpu", parallel = "%s", sharding = "%s", replicate = %d, optimizer = "adam",
  batch_size = 4, iters = 1, warmup = 1 }
local stages = {}
for _, stage in ipairs(record.memory_stages) do stages[stage.stage] = stage.allocated_bytes end
local held = record.sharding
-- Everybody's own figures agree with what the allocator has counted.
local model = stages["after model creation"] - stages.start
assert(model >= held.parameter_bytes and model < held.parameter_bytes * 1.02 + 4096, model .. " for " .. held.parameter_bytes)
if ms.dist.rank() == 0 then print(held.parameter_bytes, held.gradient_bytes, held.optimizer_bytes, held.world, held.transport) end
]]

local function held_by(ranks, parallel, sharding, replicate)
  local out = on_ranks(ranks, holding:format(parallel, sharding, replicate or 1))
  local parameters, gradients, optimizer, world = out:match("(%d+)\t(%d+)\t(%d+)\t(%d+)")
  assert.are.equal(tostring(ranks), world, out)
  return { tonumber(parameters), tonumber(gradients), tonumber(optimizer) }
end

describe("memory of real ranks", function()
  it("shrinks with their number as the strategy says", function()
    local one, two, four = held_by(1, "fsdp", "zero3"), held_by(2, "fsdp", "zero3"), held_by(4, "fsdp", "zero3")
    for kind = 1, 3 do
      assert.near(1, two[kind] * 2 / one[kind], 0.02)
      assert.near(1, four[kind] * 4 / one[kind], 0.02)
    end
    local replicated, copies = held_by(2, "fsdp", "zero2_replicated"), held_by(2, "ddp", "zero3")
    assert.near(1, replicated[1] / one[1], 0.02)
    assert.near(1, replicated[2] * 2 / one[2], 0.02)
    for kind = 1, 3 do assert.near(1, copies[kind] / one[kind], 0.02) end
    assert.are.same(two, held_by(4, "fsdp", "zero3", 2))
  end)
end)

describe("two copies, each on two ranks", function()
  it("train as four parts do, with a bound of the global norm too, and one of them is saved", function()
    on_ranks(4, [[
      local function weights(model)
        local list = {}
        for _, name in ipairs(model.parameters) do list[name] = model:parameter(name):clone() end
        return list
      end
      local function trainer(parallel, clip, bound)
        local model = ms.model("linear-tiny", { device = "cpu", dtype = "float64", hidden_dim = 12, seed = 3 })
        return ms.trainer { model = model, data = ms.data.synthetic { batch_size = 2 }, optimizer = ms.optim.sgd { lr = 0.5 },
          parallel = parallel, clip = clip, clip_global_norm = bound, privacy = bound == nil and { secure = false } or nil }
      end
      local function farthest(one, other)
        local largest = 0
        for name, value in pairs(one) do largest = math.max(largest, (value - other[name]):abs():max():item()) end
        return largest
      end
      for _, case in ipairs { { ms.clip("flash", { noise_multiplier = 0.5 }) }, { ms.clip "none", 1e-3 }, { ms.clip "none", 0 } } do
        local found = {}
        for copies = 1, 2 do
          local run = trainer(ms.fsdp { replicate = copies }, case[1], case[2])
          for _ = 1, 2 do run:step() end
          if copies == 2 then run:save("saved" .. _) end
          run:gather()
          found[copies] = weights(run.model)
          run:close()
        end
        local difference = farthest(found[1], found[2])
        assert(difference < 1e-12, difference)
        local again = trainer(ms.fsdp {}, case[1], case[2])
        assert(again:resume("saved" .. _) == 2)
        again:gather()
        assert(farthest(weights(again.model), found[2]) == 0)
      end
    ]])
    assert.are.same({ "index.json", "rank00000.safetensors", "rank00001.safetensors" }, support.list(folder .. "/saved1/step_00000002"))
  end)

  it("need two ranks each", function()
    local result = support.run(("%s verify --nproc 2 --parallel fsdp --replicate 2 --model linear-tiny --options default"):format(quoted))
    assert.are.equal(4, result.code)
    assert.matches("expected groups of at least 2 ranks each, got 2 groups of 2 ranks", result.out .. result.err)
  end)
end)

describe("the order of events on real ranks", function()
  it("is that of the prefetch: a gather begins before the computation before it ends, or after", function()
    local out = on_ranks(2, [[
      local function order(forward, backward)
        local trainer = ms.trainer { model = ms.model("llama3-tiny", { device = "cpu", num_layers = 4 }), optimizer = ms.optim.sgd {},
          data = ms.data.synthetic { batch_size = 2, seq_length = 32 }, record_timeline = true,
          parallel = ms.fsdp { forward_prefetch = forward, backward_prefetch = backward } }
        trainer:step()
        local spans = trainer:step().spans
        local function find(name, nth)
          for _, span in ipairs(spans) do
            if span.name == name and span.lane ~= "exposed" then
              nth = nth - 1
              if nth == 0 then return span end
            end
          end
          error("no span " .. name)
        end
        return find("all_gather model.layers.2", 1).begin_ms < find("forward model.layers.1", 1).end_ms,
          find("all_gather model.layers.1", 2).begin_ms < find("backward model.layers.2", 1).end_ms
      end
      for _, case in ipairs { { true, "pre" }, { false, "post" }, { false, "none" } } do
        local first, second = order(case[1], case[2])
        if ms.dist.rank() == 0 then print(case[2], first, second) end
      end]])
    assert.are.equal("pre\ttrue\ttrue\npost\tfalse\tfalse\nnone\tfalse\tfalse\n", out)
  end)
end)

describe("steps of real ranks", function()
  -- Each of these once trained on something else, silently.
  local training = [[
    local function train(parallel, batches, mode, budget)
      local rank, world = ms.dist.rank(), ms.dist.world()
      local model = ms.model("llama3-tiny", { device = "cpu", dtype = "float64", task = "lm", seed = 0 })
      local trainer = ms.trainer { model = model, optimizer = ms.optim.sgd { lr = 0.1 }, parallel = parallel, expected_batch_size = 10,
        clip = ms.clip(mode, { max_grad_norm = 0.5, noise_multiplier = 0, memory_budget_mb = budget }) }
      for step = 1, 2 do
        local sizes = batches[step]
        local function rows(first, count)
          local list = {}
          for i = 1, count do
            list[i] = {}
            for t = 1, 8 do list[i][t] = (first + i) * 7 + t * 3 + step end
          end
          return list
        end
        local first, count = 0, 0
        if world == 1 then
          for _, size in ipairs(sizes) do count = count + size end
        else
          for r = 1, rank do first = first + sizes[r] end
          count = sizes[rank + 1]
        end
        local ids = count > 0 and ms.tensor(rows(first, count), { dtype = "int64" }) or ms.zeros({ 0, 8 }, { dtype = "int64" })
        trainer:step { input_ids = ids, labels = ids, attention_mask = ms.ones({ count, 8 }, { dtype = "bool" }) }
      end
      trainer:gather()
      return ("%.12g %.12g"):format(model:parameter("model.norm.weight"):norm():item(),
        model:parameter("model.layers.0.mlp.up_proj.weight"):norm():item())
    end
    ]]

  it("take batches of one's own, uneven and empty ones, with a plan that all ranks share", function()
    local text = training .. [[
      local batches = { { 6, 1, 3 }, { 2, 0, 8 } }
      for _, case in ipairs { { "flash", 0 }, { "auto", 0 }, { "auto", 1 } } do
        for _, parallel in ipairs { ms.fsdp {}, ms.fsdp { sharding = "zero2" }, ms.ddp { bucket_mb = 0.1 } } do
          local result = train(parallel, batches, case[1], case[2])
          if ms.dist.rank() == 0 then print(result) end
        end
      end]]
    assert.are.equal(on_ranks(1, text), on_ranks(3, text))
  end)

  it("of a trainer that one rank does not have are an error on all", function()
    support.write(folder .. "/script.lua", [[
      local ms = require 'moonshard'
      local function trainer()
        return ms.trainer { model = ms.model("linear-tiny", { device = "cpu" }), data = ms.data.synthetic { batch_size = 2 },
          parallel = ms.ddp {} }
      end
      local one, two = trainer(), trainer()
      if ms.dist.rank() == 0 then one:step() else two:step() end]])
    local result = support.run(("%s run --nproc 2 --log-dir %s/logs script.lua"):format(quoted, folder), { folder = folder, seconds = 60 })
    assert.are_not.equal(0, result.code)
    assert.matches("rank 0 in step 1 of its trainer 1 and rank 1 in step 1 of its trainer 2", result.err, 1, true)
  end)
end)

describe("norms of real ranks", function()
  it("differ before the gather, agree after it, and are those of one process", function()
    local text = [[
      local rank, world = ms.dist.rank(), ms.dist.world()
      local model = ms.model("llama3-tiny", { device = "cpu", dtype = "float64" })
      local trainer = ms.trainer { model = model, clip = ms.clip("ghost", { max_grad_norm = 0.5 }), grad_accum = 2 / world,
        data = ms.data.synthetic { batch_size = 2, seq_length = 16 }, parallel = ms.fsdp {} }
      local report = trainer:step()
      for i, norm in ipairs(report.all_norms) do
        assert(ms.dist.all_reduce(norm, "max") == norm and ms.dist.all_reduce(norm, "min") == norm, "norm " .. i)
      end
      if world > 1 then
        local own = ms.dist.all_gather(report.norms)
        assert(own[1][1] ~= own[2][1], "ranks have the same samples")
        assert(own[1][1] == report.all_norms[1] and own[2][1] == report.all_norms[3])
      end
      if rank == 0 then
        for _, norm in ipairs(report.all_norms) do print(("%.12g"):format(norm)) end
        print(("%.12g"):format(report.loss))
      end]]
    assert.are.equal(on_ranks(1, text), on_ranks(2, text))
  end)

  it("that are summed over ranks are a timing mode, labelled as not private", function()
    local out = on_ranks(2, [[
      local record = ms.run { model = "linear-tiny", device = "cpu", mode = "flash", parallel = "ddp", norm_reduce = "sum", batch_size = 2,
        iters = 1, warmup = 0 }
      if ms.dist.rank() == 0 then print(record.privacy.private_engine, record.privacy.why_no_epsilon) end
      assert(record.time.phases_ms.norm_reduce)]])
    assert.matches("^false\tnorm_reduce = sum mixes samples of different ranks: for timing, not private", out)
  end)

  it("whose sums are rounded before the noise make no claim", function()
    local out = on_ranks(2, [[
      local record = ms.run { model = "linear-tiny", device = "cpu", mode = "flash", parallel = "fsdp", reduce_dtype = "bfloat16",
        batch_size = 2, iters = 1, warmup = 0, noise_multiplier = 1 }
      if ms.dist.rank() == 0 then print(record.privacy.why_no_epsilon) end]])
    assert.matches("^reduce_dtype = bfloat16 rounds the ranks' sums before the noise is added", out)
  end)

  it("are counted over all ranks in a record, beside each rank's own communication", function()
    local out = on_ranks(2, [[
      local record = ms.run { model = "linear-tiny", device = "cpu", mode = "ghost", parallel = "fsdp", batch_size = 2, iters = 1 }
      local counted = 0
      for _, count in ipairs(record.privacy.norms_histogram.counts) do counted = counted + count end
      assert(counted == 4, counted)
      assert(#record.ranks == 2)
      local own = record.ranks[ms.dist.rank() + 1]
      for _, name in ipairs { "comm_work_ms", "comm_exposed_ms", "comm_overlap_percent" } do
        assert(own[name] == record.metrics[name], name)
        assert(ms.dist.all_reduce(record.ranks[1][name], "max") == record.ranks[1][name], "both ranks tell the same of rank 0")
      end
      if ms.dist.rank() == 0 then print("same") end]])
    assert.matches("^same", out)
  end)
end)

-- One script for all ranks, in which one thing depends on the rank: a claim would be false, so it is an error on every rank.
local ranks_differ = [[
local rank = ms.dist.rank()
local function of(name, same, other) return name == arg[1] and rank == 1 and other or same end
os.execute("mkdir -p text" .. rank)
local file = assert(io.open("text" .. rank .. "/a.txt", "w"))
file:write((of("contents", "one two three four ", "six two three four "):rep(100)))
file:close()
local model = ms.model("llama3-tiny", { device = "cpu", num_layers = 1, task = "lm", vocab_size = 300, seed = of("seed", 1, 2) })
local text = ms.data.text { folder = "text" .. rank, max_length = 8, model = model, cache = "none" }
local function trainer()
  return ms.trainer { model = model, parallel = ms.fsdp {}, optimizer = ms.optim.sgd { lr = of("lr", 0.1, 0.2) },
    clip = ms.clip("bookkeeping", { noise_multiplier = of("noise_multiplier", 1, 2), max_grad_norm = of("max_grad_norm", 1, 3) }),
    data = ms.data.loader { dataset = text, sampler = "poisson", batch_size = 4, expected_batch_size = of("expected_batch_size", 8, 9) },
    privacy = { delta = of("delta", 1e-5, 1e-4), secure = true } }
end
local ok, result = pcall(trainer)
print(ok and "agreed" or result)
if ok then
  result:step()
  assert(result:privacy().epsilon, result:privacy().why_no_epsilon)
end
]]

describe("ranks that would make a claim together", function()
  local function outcome(name)
    support.write(folder .. "/script.lua", "local ms = require 'moonshard'\n" .. ranks_differ)
    local command = ("%s run --nproc 2 --log-dir %s/logs script.lua %s"):format(quoted, folder, name)
    local result = support.run(command, { folder = folder, seconds = 120 })
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.are.equal(result.out:match("^[^\n]*got another"), support.read(folder .. "/logs/log.rank1.txt"):match("[^\n]*got another"))
    return result.out
  end

  it("agree on everything it rests on, or say what differs and where", function()
    assert.matches("^agreed", outcome("nothing"))
    for _, name in ipairs { "seed", "contents", "lr", "noise_multiplier", "max_grad_norm", "expected_batch_size", "delta" } do
      local wanted = "option '" .. name .. "': expected the same on all ranks, got another on rank 1 than on rank 0"
      assert.matches(wanted, outcome(name), 1, true)
    end
  end)

  it("compare the data of an experiment, too", function()
    local out = on_ranks(2, [[
      local folder = "text" .. ms.dist.rank()
      os.execute("mkdir -p " .. folder)
      local file = assert(io.open(folder .. "/a.txt", "w"))
      file:write((ms.dist.rank() == 0 and "one two three four " or "six two three four "):rep(100))
      file:close()
      local ok, result = pcall(ms.run, { model = "llama3-tiny", device = "cpu", num_layers = 1, task = "lm", vocab_size = 300,
        seq_length = 8, mode = "bookkeeping", noise_multiplier = 1, parallel = "fsdp", batch_size = 4, sampler = "poisson",
        data_folder = folder, iters = 1, warmup = 0 })
      if ms.dist.rank() == 0 then print(ok and result.error or result) end]])
    assert.matches("option 'contents': expected the same on all ranks, got another on rank 1 than on rank 0", out, 1, true)
  end)
end)
