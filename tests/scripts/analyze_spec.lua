--- Analyses of results: fits with known answers, overhead, memory by owner, bottleneck rules.
local support = require "tests.support.support"
local ms = require "moonshard"
local bottleneck = require "moonshard.analyze.bottleneck"
local fake = require "tests.support.fake_runs"
local scaling = require "moonshard.analyze.scaling"

local folder
before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local lengths = { 64, 128, 256, 512, 1024 }
local function figures(of)
  local y = {}
  for i, length in ipairs(lengths) do y[i] = of(length) end
  return y
end

describe("a fit", function()
  it("of a power finds its exponent, without error", function()
    local fit = scaling.fit(lengths, figures(function(t) return 3 * t ^ 1.5 end))
    assert.is_near(1.5, fit.exponent, 1e-9)
    assert.is_near(0, fit.standard_error, 1e-9)
    assert.is_near(3, fit.factor, 1e-6)
    assert.is_near(1.5, fit.last_exponent, 1e-9)
    assert.are.equal("between", fit.verdict)
  end)

  it("sees through a fixed cost, which flattens the exponent", function()
    local linear = scaling.fit(lengths, figures(function(t) return 100 + 0.5 * t end))
    assert.is_true(linear.exponent < 0.8)
    assert.are.equal("O(T)", linear.verdict)
    assert.is_near(100, linear.linear.offset, 1e-6)
    assert.is_near(0.5, linear.linear.slope, 1e-9)
    local quadratic = scaling.fit(lengths, figures(function(t) return 100 + 0.002 * t * t end))
    assert.is_true(quadratic.exponent < 1.5)
    assert.are.equal("O(T^2)", quadratic.verdict)
    assert.are.equal("a + b T^2", quadratic.better)
  end)

  it("has an error that agrees with the textbook's on noisy figures", function()
    -- ln y = 1 ln x + noise of +d, -d, +d, -d over x = 1, e, e^2, e^3: slope 1 - 0.4 d, residual variance known by hand
    local d, x, y = 0.1, {}, {}
    for i = 0, 3 do
      x[i + 1] = math.exp(i)
      y[i + 1] = math.exp(i + (i % 2 == 0 and d or -d))
    end
    local fit = scaling.fit(x, y)
    assert.is_near(1 - 0.4 * d, fit.exponent, 1e-12)
    -- residuals: sum v^2 - slope^2 suu, with v the noise around its mean 0, suu = 5, suv = -2 d; error = sqrt(rss / 2 / 5)
    assert.is_near(math.sqrt((4 * d * d - (2 * d) ^ 2 / 5) / 2 / 5), fit.standard_error, 1e-12)
  end)

  it("of what does not grow is O(1)", function()
    assert.are.equal("O(1)", scaling.fit(lengths, figures(function(t) return 5 + t % 3 * 0.01 end)).verdict)
  end)

  it("of noise that hides the answer is undecided; of noise that does not, decided", function()
    assert.are.equal("undecided", scaling.fit(lengths, { 10, 60, 20, 200, 90 }).verdict)
    local noisy = scaling.fit(lengths, { 64, 100, 300, 450, 1100 })
    assert.are.equal("O(T)", noisy.verdict)
    assert.is_true(noisy.linear.error > 0.1)
  end)

  it("of two points gives an exponent and no verdict; of one, nothing", function()
    local fit = scaling.fit({ 10, 20 }, { 1, 4 })
    assert.is_near(2, fit.exponent, 1e-12)
    assert.is_nil(fit.standard_error)
    assert.are.equal("undecided", fit.verdict)
    assert.is_nil(scaling.fit({ 10 }, { 1 }))
    assert.is_nil(scaling.fit({ 10, 10, 10 }, { 1, 2, 3 }))
    assert.is_nil(scaling.fit({}, {}))
  end)

  it("passes over figures that are missing, zero or not a number", function()
    local fit = scaling.fit({ 1, 2, 4, 8, 16, 32 }, { 2, false, 8, 0, 0 / 0, 64 })
    assert.are.equal(3, fit.count)
    assert.is_near(1, fit.exponent, 1e-12)
  end)
end)

describe("ms.analyze.scaling", function()
  it("fits each mode apart and leaves failed points out", function()
    local points = {}
    for _, mode in ipairs { "ghost", "flash" } do
      for _, t in ipairs(lengths) do
        local slow = mode == "ghost" and t * t / 100 or t
        points[#points + 1] = { options = { mode = mode, seq_length = t }, metrics = fake.metrics(slow, 10 + t),
          result = { time = { phases_ms = { forward = { median = t / 2 } } } } }
      end
    end
    points[#points + 1] = { options = { mode = "ghost", seq_length = 2048 }, status = "oom" }
    local analysis = ms.analyze.scaling(fake.make(folder, { "mode", "seq_length" }, points))
    assert.are.equal("O(T^2)", analysis.fits.ghost.step.verdict)
    assert.are.equal("O(T)", analysis.fits.flash.step.verdict)
    assert.are.equal("O(T)", analysis.fits.flash["peak memory"].verdict)
    assert.are.equal(5, analysis.fits.ghost.forward.count)
    assert.is_nil(analysis.fits.flash.communication)
    assert.matches("O(T^2)", tostring(analysis), 1, true)
  end)
end)

describe("ms.analyze.overhead", function()
  it("compares with the point of the same other options, in GiB and percent", function()
    local runs = fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = "none", seq_length = 64 }, metrics = fake.metrics(10, 1024) },
      { options = { mode = "flash", seq_length = 64 }, metrics = fake.metrics(15, 1536) },
      { options = { mode = "flash", seq_length = 128 }, metrics = fake.metrics(30, 2048) },
      { options = { mode = "none", seq_length = 128 }, status = "oom" },
    })
    local overhead = ms.analyze.overhead(runs, { baseline = "no_dp" })
    assert.are.same({ "mode", "seq_length", "status", "peak GiB", "memory +GiB", "avg ms", "median ms", "time +%",
      "95 % of time +%" }, overhead.columns)
    assert.are.equal(0.5, overhead.rows[2][5])
    assert.is_near(50, overhead.rows[2][8], 1e-9)
    assert.is_nil(overhead.rows[3][8])
    assert.are.equal("oom", overhead.rows[4][3])
  end)

  it("takes a point that differs in a budget of one engine alone where there is no other", function()
    local runs = fake.make(folder, { "mode", "memory_budget_mb" }, {
      { options = { mode = "none", memory_budget_mb = 0 }, metrics = fake.metrics(10, 1024) },
      { options = { mode = "auto", memory_budget_mb = 512 }, metrics = fake.metrics(15, 1536) },
    })
    assert.is_near(50, ms.analyze.overhead(runs).rows[2][8], 1e-9)
    assert.are.equal(1.5, runs:overhead().rows[2][4])
  end)
end)

describe("the baseline's own rows", function()
  local function runs()
    return fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = "none", seq_length = 64 }, metrics = fake.metrics(10, 1024) },
      { options = { mode = "flash", seq_length = 64 }, metrics = fake.metrics(15, 1536) },
      { options = { mode = "none", seq_length = 128 }, status = "oom" },
    })
  end

  it("show no overhead and are marked, in both tables", function()
    local one, other = runs():overhead(), ms.analyze.overhead(runs())
    assert.are.same({ "none", 64, 10, 1, nil, 1024, 0, 0 }, one.rows[1])
    assert.are.equal(0, other.rows[1][5])
    assert.are.equal(0, other.rows[1][8])
    for _, each in ipairs { one, other } do assert.are.same({ true, false, true }, each.is_baseline) end
    assert.matches("The rows with mode = none are the baseline.", tostring(other), 1, true)
  end)

  it("may be named by another spelling, or be a number", function()
    assert.are.same({ true, false, true }, runs():overhead { baseline = "no_dp" }.is_baseline)
    assert.are.same({ true, true, false }, runs():overhead { axis = "seq_length", baseline = "64" }.is_baseline)
  end)
end)

describe("ms.analyze.tradeoff", function()
  it("marks points that no other one beats in time and memory", function()
    local runs = fake.make(folder, { "mode" }, {
      { options = { mode = "none" }, metrics = fake.metrics(10, 100) },
      { options = { mode = "ghost" }, metrics = fake.metrics(30, 90) },
      { options = { mode = "flash" }, metrics = fake.metrics(20, 90) },
      { options = { mode = "auto" }, status = "oom" },
    })
    assert.are.same({ { "none", 10, 100, "yes" }, { "ghost", 30, 90, "no" }, { "flash", 20, 90, "yes" } }, ms.analyze.tradeoff(runs).rows)
  end)
end)

describe("records of others", function()
  it("may hold anything where figures are expected", function()
    local odd = { time = { phases_ms = { forward = 3, { median = "x" } } }, layers = "many", norms_ms = { ["local"] = "slow" },
      memory = { breakdown = { 7, { owner = 3 } }, timeline = { phase = { 1, "backward" }, total = { "much" } } } }
    local runs = fake.make(folder, { "mode", "seq_length" }, {
      { options = { mode = "none", seq_length = 64 }, metrics = fake.metrics(10, 100) },
      { options = { mode = true, seq_length = "long" }, metrics = { median_time_ms = "slow", peak_memory_bytes = {} } },
    })
    runs.points[2].result = odd
    for _, name in ipairs { "overhead", "scaling", "bottleneck" } do assert.is_string(tostring(ms.analyze[name](runs)), name) end
    assert.is_nil(ms.analyze.overhead(runs).rows[2][8])
  end)
end)

describe("records without figures", function()
  it("are shown as such by every analysis", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "none" }, metrics = {} },
      { options = { mode = "flash" }, metrics = fake.metrics(15, 1536) } })
    for _, name in ipairs { "overhead", "memory", "stages", "phases", "scaling", "bottleneck", "tradeoff" } do
      assert.is_string(tostring(ms.analyze[name](runs)), name)
    end
    assert.matches("flash%s+15%s+%-%s+%-%s+1536%s+%-%s+%-", tostring(runs:overhead()))
    assert.is_string((runs:summary()))
  end)
end)

describe("ms.analyze.memory", function()
  it("has a row per owner, whose sum is the peak", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "flash" }, metrics = fake.metrics(1, 6), result = { memory = {
      peak_bytes = 6 * 2 ^ 20, peak_phase = "backward", breakdown = { { owner = "activations", bytes = 4 * 2 ^ 20 },
        { owner = "parameters", bytes = 2 ^ 20 }, { owner = "rest", bytes = 2 ^ 20 } } } } } })
    local analysis = ms.analyze.memory(runs)
    assert.are.same({ { "parameters", 1 }, { "activations", 4 }, { "rest", 1 }, { "peak", 6 } }, analysis.rows)
    assert.are.same({ "Peak: flash in backward." }, analysis.notes)
  end)

  it("says so where nothing was measured", function()
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "flash" }, metrics = fake.metrics(1, 6) } })
    assert.matches("profile = phases", tostring(ms.analyze.memory(runs)), 1, true)
  end)
end)

describe("ms.analyze.bottleneck", function()
  local function report(metrics, result)
    for key, value in pairs(fake.metrics(100, 100)) do metrics[key] = metrics[key] or value end
    return ms.analyze.bottleneck(fake.make(folder, { "mode" }, { { options = { mode = "flash" }, metrics = metrics, result = result } }))
  end
  local function names(found)
    local list = {}
    for i, finding in ipairs(found.findings) do list[i] = finding.name end
    return list
  end

  it("names communication where it is exposed and the GPU idle", function()
    local found = report({ comm_share_percent = 35, gpu_utilization_percent = 40 })
    assert.are.same({ "communication" }, names(found))
    assert.matches("35 %% of the step is exposed communication, GPU used 40 %%", found.findings[1].evidence[1].text)
    assert.matches("advice    overlap it", tostring(found), 1, true)
    found = report({ comm_share_percent = 35 }, { sharding = { fake = true, world = 2 } })
    assert.matches("exposed communication (modelled from a link)", found.findings[1].evidence[1].text, 1, true)
  end)

  it("calls points by their words, and numbers by their option", function()
    local metrics = fake.metrics(100, 100)
    metrics.comm_share_percent = 35
    local found = ms.analyze.bottleneck(fake.make(folder, { "mode", "batch_size" }, { { options = { mode = "flash", batch_size = 4 },
      metrics = metrics } }))
    assert.are.equal("flash, batch_size 4", found.findings[1].evidence[1].point)
  end)

  it("does not when the GPU is busy, or below the threshold", function()
    assert.are.same({}, names(report({ comm_share_percent = 35, gpu_utilization_percent = 90 })))
    assert.are.same({}, names(report({ comm_share_percent = 19, gpu_utilization_percent = 90 })))
    assert.matches("nothing stands out", tostring(report({})), 1, true)
  end)

  it("names what is kept through backward", function()
    local timeline = { phase = { "forward", "backward", "backward" }, total = { 10, 20 * 2 ^ 20, 40 * 2 ^ 20 }, ms = { 1, 2, 3 } }
    local found = report({ engine_kept_bytes = 30 * 2 ^ 20 }, { memory = { timeline = timeline, breakdown = {} } })
    assert.are.same({ "kept_activations" }, names(found))
    assert.matches("keeps 30.0 MiB, 30 % of the peak, memory rises by 20.0 MiB", found.findings[1].evidence[1].text, 1, true)
    local plain = fake.make(folder .. "/plain", { "mode" }, { { options = { mode = "none" }, metrics = fake.metrics(100, 100),
      result = { memory = { timeline = timeline, breakdown = {} } } } })
    assert.are.same({}, names(ms.analyze.bottleneck(plain)))
  end)

  it("names norms and the layer that takes more than its share", function()
    local layers = { { layer = "a", kind = "linear", norm_ms = 2 }, { layer = "b", kind = "linear", norm_ms = 2 },
      { layer = "c", kind = "linear", norm_ms = 2 }, { layer = "head", kind = "linear", norm_ms = 34 } }
    local found = report({}, { layers = layers })
    assert.are.same({ "layer", "norms" }, names(found))
    assert.matches("head (linear): 34 ms, 17 times the median layer, 85 % of all norms", found.findings[1].evidence[1].text, 1, true)
  end)

  it("names the second pass, data, and an idle GPU", function()
    assert.are.same({ "second_backward" }, names(report({}, { time = { phases_ms = { second_backward = { median = 30 } } } })))
    assert.are.same({ "data" }, names(report({ data_share_percent = 12 })))
    assert.are.same({ "idle" }, names(report({ gpu_utilization_percent = 30 })))
  end)

  it("takes other thresholds, and refuses one that there is not", function()
    local metrics = { data_share_percent = 5, median_time_ms = 1 }
    local runs = fake.make(folder, { "mode" }, { { options = { mode = "flash" }, metrics = metrics } })
    assert.are.equal(1, #bottleneck.analyze(runs, { thresholds = { data_percent = 4 } }).findings)
    local ok, message = pcall(bottleneck.analyze, runs, { thresholds = { data_procent = 4 } })
    assert.is_false(ok)
    assert.matches("did you mean 'data_percent'", message, 1, true)
  end)
end)
