--- ms.trace: critical paths, forecasts and differences; and the verb.
local support = require "tests.support.support"
local ms = require "moonshard"

local root = debug.getinfo(1, "S").source:sub(2):match "^(.*)tests/scripts/trace_spec%.lua$"
if root == "" then root = "./" end
local h200 = root .. "examples/results/bench_gpu"
local linear = root .. "examples/results/document_003_linear"

local function fails(call, text)
  local message = support.message_of(call)
  assert.truthy(message:find(text), message)
end

--- A small private step on the CPU, traced.
local function traced_step(engine)
  local file = os.tmpname()
  local trainer = ms.trainer { model = ms.model("llama3-tiny", { device = "cpu" }),
    data = ms.data.synthetic { batch_size = 2, seq_length = 32 }, clip = ms.clip(engine, { max_grad_norm = 1, noise_multiplier = 1 }) }
  trainer:step()
  trainer:trace(file)
  trainer:step()
  trainer:close()
  return file
end

describe("ms.trace.path", function()
  it("says what a step waited for, and its parts sum up to it", function()
    local path = ms.trace.path(h200)
    assert.are.equal("NVIDIA H200", path.device)
    for _, parts in ipairs { path.kinds, path.phases, path.layers, path.names } do
      local sum = 0
      for _, part in ipairs(parts) do sum = sum + part.ms end
      assert.is_true(math.abs(sum - path.step_ms) < 1e-3)
    end
    assert.are.equal("kernel", path.kinds[1].name)
    assert.truthy(tostring(path):find("critical path of llama3.1-8b auto, NVIDIA H200", 1, true))
    assert.is_true(path.measured_ms > 100)  -- the point's result lies beside it
  end)

  it("gives every part where it is asked to", function()
    assert.is_nil(ms.trace.path(linear .. "/traces/ddp").segments)
    local path = ms.trace.path(linear .. "/traces/ddp", { segments = true })
    local at = 0
    for _, segment in ipairs(path.segments) do
      assert.is_true(math.abs(segment.begin_ms - at) < 1e-3)
      at = segment.begin_ms + segment.ms
    end
  end)

  it("names what it expected", function()
    fails(function() ms.trace.path "nowhere" end, "expected a trace or a folder with one, got 'nowhere', which is not there")
    fails(function() ms.trace.path(linear) end, "expected a folder with one trace of rank 0, got .* with 10; name one of them")
    fails(function() ms.trace.path(h200, { rank = 3 }) end, "which has none; measure with profile = \"trace\"")
    fails(function() ms.trace.path(h200, { stpe = 1 }) end, "unknown option 'stpe'; did you mean 'step'?")
    fails(function() ms.trace.path(h200, { step = 2 }) end, "option 'step': expected 1 to 1")
  end)
end)

describe("ms.trace.what_if", function()
  it("predicts a step without its norms from ranges that our traces have", function()
    local file = traced_step "bookkeeping"
    local forecast = ms.trace.what_if(file, { norms = true })
    assert.is_true(forecast.predicted_ms < forecast.step_ms)
    assert.is_true(forecast.removed_host_ms > 0)
    os.remove(file)
  end)

  it("predicts the plain step that an H200 was measured with, from the private step's trace", function()
    local folder = root .. "examples/results/what_if_h200"
    local plain = {}
    local points = ms.load(folder).points
    for _, point in ipairs(points) do
      local key = point.options.model .. point.options.seq_length
      if point.options.mode == "none" then plain[key] = point.metrics.median_time_ms end
    end
    local traced = 0
    for _, point in ipairs(points) do
      local path = folder .. "/points/" .. point.id
      if support.exists(path .. "/trace.rank0.json.gz") then
        local forecast = ms.trace.what_if(path, { norms = true })
        local measured = plain[point.options.model .. point.options.seq_length]
        assert.is_true(math.abs(forecast.predicted_measured_ms / measured - 1) < 0.02)
        traced = traced + 1
      end
    end
    assert.are.equal(2, traced)
  end)

  it("leaves out the first of two backward passes", function()
    local file = traced_step "flash"
    assert.truthy(tostring(ms.trace.what_if(file, { norms = true })):find("first of two backward passes", 1, true))
    os.remove(file)
  end)

  it("scales phases, kinds and names, and says what it does not know", function()
    local whole = ms.trace.what_if(h200, { phases = { forward = 1 } })
    assert.is_true(math.abs(whole.predicted_ms - whole.step_ms) < 1e-3)
    assert.is_true(ms.trace.what_if(h200, { phases = { forward = 0.5 } }).predicted_ms < whole.step_ms - 15)
    assert.is_true(ms.trace.what_if(h200, { remove = { "*fused_update*" } }).predicted_ms < whole.step_ms - 20)
    fails(function() ms.trace.what_if(h200, { phases = { forwrd = 0.5 } }) end, "expected a phase of this step, got 'forwrd'")
    fails(function() ms.trace.what_if(h200, {}) end, "expected something to change, got nothing")
    fails(function() ms.trace.what_if(h200, { link = 0 }) end, "option 'link': expected a number from")
  end)

  it("knows what the plain step of the same work takes, on an H200", function()
    local plain
    for _, point in ipairs(ms.load(h200).points) do
      local o = point.options
      if o.mode == "none" and o.batch_size == 2 and o.seq_length == 1024 then plain = point.metrics.median_time_ms end
    end
    local forecast = ms.trace.what_if(h200, { plain = true })
    assert.is_true(math.abs(forecast.predicted_measured_ms / plain - 1) < 0.05, tostring(forecast))
  end)
end)

describe("ms.trace.diff", function()
  it("sorts by what changed most", function()
    local diff = ms.trace.diff(linear .. "/traces/ddp", linear .. "/traces/fsdp_module_post")
    local last = math.huge
    for _, row in ipairs(diff.names) do
      assert.is_true(math.abs(row.change_ms) <= last)
      last = math.abs(row.change_ms)
    end
    assert.truthy(tostring(diff):find("before: linear none", 1, true))
  end)
end)

describe("moonshard trace", function()
  it("shows paths, forecasts and differences, as JSON, too", function()
    for words, text in pairs {
      ["trace path " .. h200] = "kernel, operator or gap",
      ["trace whatif " .. h200 .. " --phase backward=0.5 --json"] = '"predicted_ms"',
      [("trace diff %s/traces/ddp %s/traces/fsdp_module_pre"):format(linear, linear)] =
        "count before  count after  ms before  ms after  change",
    } do
      local result = support.run_program(words)
      assert.are.equal(0, result.code)
      assert.truthy(result.out:find(text, 1, true), result.out)
    end
  end)

  it("has no empty lists in its JSON, which Lua would write as objects", function()
    local result = support.run_program("trace whatif " .. h200 .. " --phase backward=0.5 --json")
    assert.is_nil(result.out:find("{}", 1, true), result.out)
    assert.is_nil(result.out:find '"notes"')
  end)

  it("says nothing of a simulated private step that its trace does not know", function()
    local folder = support.temporary_folder()
    assert.are.equal(0, support.run_program("plan --model llama3.2-1b --gpu h200 --mode bookkeeping --batch-size 4 --seq-length 512 "
      .. "--no-search --simulate 2 --out " .. folder).code)
    local run = support.run_program("trace path " .. folder .. "/run_*")
    local path = run.out
    assert.are.equal(0, run.code, run.err)
    assert.is_nil(path:find("measured", 1, true))
    assert.truthy(path:find "clipped_sum +%d")
    assert.is_nil(path:find "\n%-  ")
    for _, change in ipairs { "--plain", "--norms" } do
      local result = support.run_program(("trace whatif %s/run_* %s"):format(folder, change))
      assert.are.equal(1, result.code)
      assert.truthy(result.err:find("moonshard plan with --mode none", 1, true), result.err)
    end
    local half = support.run_program(("trace whatif %s/run_* --phase clipped_sum=0.5"):format(folder))
    assert.are.equal(0, half.code)
    assert.is_nil(half.out:find("measured", 1, true))
    support.remove(folder)
  end)

  it("ends in one line about mistakes", function()
    for words, text in pairs {
      [""] = "expected path, whatif, diff, got nothing",
      ["pth " .. h200] = "unknown verb 'pth'; did you mean 'path'?",
      ["path"] = "expected one trace",
      ["diff " .. h200] = "expected two traces",
      ["whatif " .. h200] = "expected something to change",
      ["whatif " .. h200 .. " --phase backward"] = "expected NAME=FACTOR",
      ["path " .. h200 .. " --top -2"] = "option '--top': expected 1 row or more, got -2",
      ["path " .. h200 .. " --norms"] = "option '--norms' means nothing to path (takes step, top, segments, rank, json)",
      ["path " .. h200 .. " --scale x=2"] = "moonshard trace whatif",
      ["whatif " .. h200 .. " --link 2 --top 3"] = "option '--top' means nothing to whatif",
      ["diff " .. h200 .. " " .. h200 .. " --step 1"] = "option '--step' means nothing to diff",
      ["path " .. h200 .. " --segments"] = "option '--segments': expected --json beside it",
    } do
      local result = support.run_program("trace " .. words)
      assert.are.equal(2, result.code)
      assert.truthy(result.err:find(text, 1, true), result.err)
    end
  end)
end)
