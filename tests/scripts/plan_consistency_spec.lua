--- ms.plan: figures that must agree with each other, options that must count, and scripts that must run.
local support = require "tests.support.support"
local ms = require "moonshard"
local lists = require "moonshard.lists"

local small = { model = "llama3.2-1b", gpu = "h200", batch_size = 2, seq_length = 512, param_dtype = "bfloat16", search = false }

local function step(more)
  local plan = ms.plan(lists.merged(small, more))
  return plan.plans[1] or plan.too_large[1], plan
end

local function refusal(more, options)
  local ok, message = pcall(ms.plan, lists.merged(options or small, more))
  assert.is_false(ok)
  assert.truthy(tostring(message):find("plan_consistency_spec.lua:%d+: ms.plan: "), tostring(message))
  return tostring(message)
end

describe("ms.plan", function()
  it("counts steps by the tokens of each plan, and has the plan first that is done first", function()
    local plan = ms.plan { model = "llama3.2-1b", mode = "none", gpu = "h200", gpus = 8, global_batch = 64, tokens = 1e9,
      parallel = "ddp", checkpointing = "none", try = { seq_length = { 512, 2048 } }, keep = 8 }
    local lengths = {}
    for i, row in ipairs(plan.plans) do
      lengths[row.options.seq_length] = true
      assert.are.equal(math.ceil(1e9 / (64 * row.options.seq_length)), row.run.steps)
      assert.is_true(math.abs(row.run.hours * 3600 * row.tokens_per_s / 1e9 - 1) < 0.01)
      assert.is_true(i == 1 or row.run.hours >= plan.plans[i - 1].run.hours)
    end
    assert.is_true(lengths[512] and lengths[2048])
  end)

  it("has one meaning for a GPU's memory, whichever way it is given", function()
    local file = os.tmpname() .. ".json"
    local shipped = ms.plan(lists.merged(small, { mode = "none" })).machine.file
    local text = support.read(shipped):gsub('"memory_gb": ?[%d.]+', '"memory_gb": 24')
    support.write(file, text)
    local options = { mode = "auto", batch_size = 8, seq_length = 1024 }
    local given = step(lists.merged(options, { memory_gb = 24 }))
    local profile = step(lists.merged(options, { gpu = file }))
    os.remove(file)
    assert.are.equal(profile.peak_memory_bytes, given.peak_memory_bytes)
    assert.is_true(math.abs(profile.step_ms / given.step_ms - 1) < 1e-9)
    assert.is_true(given.peak_memory_bytes < step(options).peak_memory_bytes)
  end)

  it("takes a CPU's memory limit as its memory", function()
    local tiny = { model = "llama3-tiny", gpu = "cpu", search = false }
    assert.are.equal(1, #ms.plan(lists.merged(tiny, { memory_limit_mb = 100 })).plans)
    assert.are.equal(0, #ms.plan(lists.merged(tiny, { memory_limit_mb = 4 })).plans)
    assert.truthy(refusal({ memory_limit_mb = 100 }):find("'memory_limit_mb': expected the plan of a CPU", 1, true))
  end)

  it("counts what adapters that drop their inputs hold, as a run on this CPU does", function()
    for _, mode in ipairs { "none", "bookkeeping", "flash" } do
      local options = { model = "llama3-tiny", mode = mode, lora_rank = 8, batch_size = 8, seq_length = 256 }
      local function both(dropout)
        local all = lists.merged(options, { lora_dropout = dropout })
        local plan = ms.plan(lists.merged(all, { gpu = "cpu", search = false })).best
        local measured = ms.run(lists.merged(all, { device = "cpu", iters = 1, warmup = 1 })).metrics.peak_memory_bytes
        assert.is_true(math.abs(plan.peak_memory_bytes / measured - 1) < 0.08, mode .. dropout .. ": " ..
          plan.peak_memory_bytes .. " of " .. measured)
        return plan, measured
      end
      local without, measured_without = both(0)
      local with, measured = both(0.1)
      if mode == "none" then assert.is_true(measured < 1.01 * measured_without) end  -- no mask is ever written
      assert.is_true(with.step_ms > 1.02 * without.step_ms)
    end
  end)

  it("says where the training refuses the noise of adaptive clipping", function()
    local options = { model = "llama3-tiny", mode = "bookkeeping", gpu = "cpu", batch_size = 4, clipping = "adaptive", search = false }
    local function says(more)
      return tostring(ms.plan(lists.merged(options, more))):find("this training will be refused: adaptive clipping", 1, true) ~= nil
    end
    assert.is_true(says { noise_multiplier = 1 })
    assert.is_false(says { noise_multiplier = 1, quantile_noise = 1 })
    assert.is_false(says { noise_multiplier = 0.3 })
    local run = { device = "cpu", iters = 1, warmup = 0, seq_length = 8, noise_multiplier = 1 }
    options.gpu, options.search = nil, nil
    assert.truthy(support.message_of(function() ms.run(lists.merged(options, run)) end):find("2 x quantile_noise", 1, true))
  end)

  it("predicts what a CPU holds of capped scores, and of states that are made wide, as runs have it", function()
    local capped = { model = "gemma2-tiny", batch_size = 4, seq_length = 256 }
    local wide = { batch_size = 256, hidden_dim = 1024, state_dtype = "bfloat16", mode = "none" }
    for _, options in ipairs {
      lists.merged(capped, { mode = "none", checkpointing = "block" }),
      lists.merged(capped, { mode = "none", task = "classify" }),
      lists.merged(capped, { mode = "ghost" }),
      lists.merged(capped, { mode = "bookkeeping", checkpointing = "block" }),
      lists.merged(wide, { model = "linear-tiny", optimizer = "adam" }),
      { model = "llama3-tiny", mode = "none", batch_size = 1, seq_length = 32, hidden_dim = 512, num_layers = 3, optimizer = "adamw",
        state_dtype = "bfloat16" },
    } do
      local planned = ms.plan(lists.merged(options, { gpu = "cpu", search = false })).best.peak_memory_bytes
      local measured = ms.run(lists.merged(options, { device = "cpu", iters = 1, warmup = 1 })).metrics.peak_memory_bytes
      assert.is_true(math.abs(planned / measured - 1) < 0.08, ("%s %s: %d of %d"):format(options.model, options.mode, planned, measured))
    end
  end)

  it("tells what waits for the host from what waits for other ranks", function()
    local offload = { gpus = 2, parallel = "fsdp", cpu_offload = true, mode = "bookkeeping", optimizer = "adamw", link = "instant" }
    local row, plan = step(offload)
    assert.is_true(row.exposed_ms <= row.communication_ms + 1e-9)
    assert.is_true(row.copies_exposed_ms > 0)
    assert.truthy(plan:explain():find("ms waited for copies from the host", 1, true))
    assert.is_nil(plan:explain():find("slower ranks", 1, true))
    assert.is_true(step({ parallel = "fsdp", cpu_offload = true, mode = "none" }).copies_exposed_ms > 0)
    assert.are.equal(0, step({ gpus = 2, parallel = "fsdp", mode = "none" }).copies_exposed_ms)
  end)

  it("drops no option without a word", function()
    assert.truthy(refusal({ link = "pcie5" }):find("'link': expected several gpus of a node", 1, true))
    assert.truthy(refusal({ link_gb_per_s = 100 }):find("'link_gb_per_s': expected several gpus", 1, true))
    assert.truthy(refusal({ host_gb_per_s = 50 }):find("'host_gb_per_s': expected a 'cpu_offload' beside it", 1, true))
    assert.truthy(refusal({ kernels = "reference" }):find("'kernels': expected auto", 1, true))
    local said = support.run_program "plan --model llama3-tiny --gpu cpu --device cpu"
    assert.are.equal(2, said.code)
    assert.matches("option 'device': expected --calibrate", said.err, 1, true)
    local plan = ms.plan { model = "llama3-tiny", gpu = "cpu", private = true, examples = 100000 }
    assert.truthy(table.concat(plan.assumptions, "\n"):find("beside 'examples' for its hours and its epsilon", 1, true))
    local slower = step { gpus = 2, parallel = "fsdp", host_gb_per_s = 50, cpu_offload = true }
    assert.is_nil(slower.likely.step_ms)
  end)

  it("shows what was tried in the front, too, where no point is faster and smaller than another", function()
    local plan = ms.plan { model = "llama3-tiny", gpu = "cpu", global_batch = 8, mode = "bookkeeping", try = { lora_rank = { 0, 8 } } }
    local front = tostring(plan):match "time against memory.*"
    assert.truthy(front:find("lora_rank", 1, true))
    for seed = 1, 4 do
      local uneven = ms.plan { model = "llama3.2-1b", mode = "bookkeeping", gpu = "h200", gpus = 8, global_batch = 64, jitter = 0.5,
        seed = seed }
      assert.are.equal(uneven.best.step_ms, uneven.front[1].step_ms)
      for i = 2, #uneven.front do
        local one, next_one = uneven.front[i - 1], uneven.front[i]
        assert.is_true(next_one.peak_memory_bytes < one.peak_memory_bytes and next_one.samples_per_s <= one.samples_per_s)
      end
    end
  end)

  it("has in JSON what it prints", function()
    local parsed = support.parse_json(support.run_program("plan --model llama3-tiny --gpu cpu --global-batch 8 --json").out)
    assert.is_true(parsed.fits > 0 and parsed.fits + #parsed.too_large <= parsed.tried)
    assert.is_number(parsed.refused)
  end)

  it("writes a sweep around the plan of a model without blocks", function()
    local folder = support.temporary_folder()
    local said = support.run_program(("plan --model linear-tiny --gpu cpu --private --global-batch 64 --sweep %s/sweep.lua"):format(folder))
    assert.are.equal(0, said.code, said.err)
    local run = support.run_program("run sweep.lua", { folder = folder })
    support.remove(folder)
    assert.are.equal(0, run.code, run.err)
    assert.matches("8 ok", run.out .. run.err, 1, true)
  end)

  it("names the caller's line where a plan is used wrongly", function()
    local plan = ms.plan { model = "llama3-tiny", gpu = "cpu", search = false }
    for said, use in pairs {
      ["expected a whole number from 1 on, got 1.5"] = function() plan:simulate { steps = 1.5 } end,
      ["expected the name of a file, got nil"] = function() plan:trace() end,
      ["/nonexistent/x.json"] = function() plan:trace "/nonexistent/x.json" end,
      ["expected the place of one of 1 plans that fit, got x"] = function() plan:row "x" end,
      ["expected a run that ends"] = function()
        ms.plan { model = "llama3.2-1b", gpu = "h200", gpus = 8, nodes = 128, steps = 100000, mtbf_h = 0.001, restart_s = 3600,
          search = false, parallel = "fsdp" }
      end,
    } do
      local ok, message = pcall(use)
      assert.is_false(ok, said)
      assert.matches("plan_consistency_spec.lua:%d+: ", tostring(message))
      assert.matches(said, tostring(message), 1, true)
    end
  end)

  it("has every stream of a simulated step on lanes of its own", function()
    local file = os.tmpname()
    for _, more in ipairs { { gpus = 2, nodes = 2, parallel = "fsdp", sharding = "zero2", mode = "none", replicate = 2 },
      { gpus = 2, parallel = "fsdp", cpu_offload = true, mode = "bookkeeping", optimizer = "adamw" } } do
      local row, plan = step(more)
      plan:trace(file)
      local ends, names = {}, {}
      for _, event in ipairs(support.parse_json(support.read(file)).traceEvents) do
        if event.ph == "M" then names[event.args.name] = true end
        if event.ph == "X" then
          local lane = event.pid .. " " .. event.tid
          assert.is_true(event.ts >= (ends[lane] or 0) - 1e-3, event.name .. " on lane " .. lane)
          ends[lane] = event.ts + event.dur
        end
      end
      assert.is_true(names["compute (modelled)"])
      assert.are.equal(more.replicate ~= nil, names["communication between copies (modelled)"] == true)
      local slower = ms.trace.what_if(file, { phases = { ["*"] = 2 } })
      assert.is_true(math.abs(slower.predicted_ms / row.step_ms - 2) < 0.01, tostring(slower.predicted_ms / row.step_ms))
    end
    os.remove(file)
  end)
end)
