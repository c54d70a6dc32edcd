--- Noise of measured times: intervals with known answers, tables, comparisons and claims that say where noise hides the answer.
local support = require "tests.support.support"
local ms = require "moonshard"
local claims = require "moonshard.studies.claims"
local expect = require "moonshard.sweep.expect"
local fake = require "tests.support.fake_runs"
local statistics = require "moonshard.analyze.statistics"

local folder
before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

--- Times around a middle: 20 steps that lie evenly within +- spread.
local function times(middle, spread, count)
  local list = {}
  for i = 1, count or 20 do list[i] = middle * (1 + spread * (2 * (i * 7 % 20) - 19) / 19) end
  return list
end

local function timed(mode, samples, more)
  local median = statistics.value(samples, "median")
  local point = { options = { mode = mode }, metrics = fake.metrics(median, 100), result = { time = { samples_ms = samples } } }
  for key, value in pairs(more or {}) do point.options[key] = value end
  return point
end

local function pair(of, to) return fake.make(folder, { "mode" }, { timed("none", to), timed("flash", of) }) end

describe("an interval of a median", function()
  it("is the same every time, holds the median, and shrinks with more steps", function()
    local few, many = statistics.interval(times(100, 0.05, 5)), statistics.interval(times(100, 0.05, 200))
    assert.are.same(few, statistics.interval(times(100, 0.05, 5)))
    for _, each in ipairs { few, many } do assert.is_true(each.low <= each.value and each.value <= each.high) end
    assert.is_true(many.high - many.low < few.high - few.low)
    assert.are.equal(200, many.count)
  end)

  it("agrees with the exact distribution of resampled medians", function()
    -- The median of a resample of n = 9 is at most the k-th smallest when 5 or more of 9 draws are: a binomial tail.
    local function tail(k)
      local p, sum, choose = k / 9, 0, 1
      for j = 0, 9 do
        if j >= 5 then sum = sum + choose * p ^ j * (1 - p) ^ (9 - j) end
        choose = choose * (9 - j) / (j + 1)
      end
      return sum
    end
    local low
    for k = 9, 1, -1 do
      if tail(k) >= 0.025 then low = k end
    end
    local found = statistics.interval { 9, 1, 8, 2, 7, 3, 6, 4, 5 }
    assert.are.equal(low, found.low)
    assert.are.equal(10 - low, found.high)
  end)

  it("covers the truth about as often as it says", function()
    local inside, state = 0, 7
    local function uniform()
      state = state * 16807 % 2147483647
      return state / 2147483647
    end
    for _ = 1, 200 do
      local samples = {}
      for i = 1, 25 do samples[i] = 1 + uniform() end
      inside = inside + (statistics.contains(statistics.interval(samples), 1.5) and 1 or 0)
    end
    assert.is_true(inside >= 180 and inside <= 199, inside .. " of 200")
  end)

  it("is refused below three steps, with the number of steps", function()
    for count = 0, 2 do
      local found, reason = statistics.interval(times(100, 0.05, count))
      assert.is_nil(found)
      assert.are.equal(("n = %d, no interval"):format(count), reason)
    end
    assert.are.equal("n = 2, no interval", select(2, statistics.ratio_interval({ 1, 2, 3 }, { 1, 2 })))
  end)

  it("of equal steps is a point", function()
    local found = statistics.interval { 4, 4, 4, 4 }
    assert.are.same({ 4, 4, 4 }, { found.low, found.value, found.high })
  end)
end)

describe("an interval of a ratio", function()
  it("contains 1 for two runs of the same work, and excludes it where one is slower", function()
    assert.is_true(statistics.contains(statistics.ratio_interval(times(101, 0.05), times(100, 0.05)), 1))
    assert.is_false(statistics.contains(statistics.ratio_interval(times(120, 0.05), times(100, 0.05)), 1))
  end)

  it("of throughput is that of the times, turned around", function()
    local runs = pair(times(50, 0.02), times(100, 0.02))
    runs.points[1].metrics.tokens_per_s, runs.points[2].metrics.tokens_per_s = 1000, 2000
    local found = statistics.of_ratio(runs.points[2], runs.points[1], "tokens_per_s")
    assert.are.equal(2, found.value)
    assert.is_true(found.low < 2 and found.high > 2 and found.low > 1.9 and found.high < 2.1)
  end)

  it("is not known of memory, and of records without step times", function()
    local runs = pair(times(50, 0.02), times(100, 0.02))
    assert.is_nil(statistics.of_ratio(runs.points[2], runs.points[1], "peak_memory_bytes"))
    runs.points[1].result = {}
    local found, reason = statistics.of_ratio(runs.points[2], runs.points[1], "median_time_ms")
    assert.is_nil(found)
    assert.is_nil(reason)
  end)
end)

describe("step times of a record", function()
  it("are its samples, else its steps without the warm-up; anything may be in there", function()
    assert.are.same({ 3, 4 }, statistics.samples { result = { time = { samples_ms = { 3, "x", 4, -1 } }, steps = { { time_ms = 9 } } } })
    assert.are.same({ 5, 6 }, statistics.samples { result = { steps = { { time_ms = 9, warmup = true }, { time_ms = 5 }, 7,
      { time_ms = 6, warmup = false } } } })
    assert.are.same({}, statistics.samples { result = { time = "slow" } })
    assert.are.same({}, statistics.samples {})
  end)
end)

describe("tables", function()
  it("show the spread beside medians, and say where there is no interval", function()
    local runs = fake.make(folder, { "mode" }, { timed("none", times(100, 0.05)), timed("flash", { 10, 12 }),
      { options = { mode = "ghost" }, metrics = fake.metrics(15, 100) } })
    local text = (runs:summary())
    assert.matches("median ms%s+IQR ms%s+95 %% of median", text)
    assert.matches("none%s+ok%s+100%s+%d[%d.]*%s+%d[%d.]* … %d[%d.]*%s", text)
    assert.matches("flash%s+ok%s+11%s+1%s+n = 2, no interval", text)
    assert.matches("ghost%s+ok%s+15%s+%-%s+%-%s", text)
  end)

  it("of overhead say within noise where the interval of the ratio contains 1", function()
    local runs = fake.make(folder, { "mode" }, { timed("none", times(100, 0.05)), timed("flash", times(101, 0.05)),
      timed("ghost", times(150, 0.05)), timed("auto", { 90, 91 }) })
    local one, other = runs:overhead(), ms.analyze.overhead(runs)
    for column, rows in pairs { [4] = one.rows, [8] = other.rows } do
      assert.is_nil(rows[1][column])
      assert.matches("^%S+ … %S+, within noise$", rows[2][column])
      assert.matches("^%S+ … %S+$", rows[3][column])
      assert.are.equal("n = 2, no interval", rows[4][column])
    end
    assert.matches("^%+4%d%.%d … %+5%d%.%d$", other.rows[3][8])
  end)

  it("warn of a busy machine in one line, and only then", function()
    assert.is_nil(statistics.warning(pair(times(100, 0.05), times(100, 0.05))))
    local runs = fake.make(folder, { "mode" }, { timed("none", times(100, 0.05)), timed("flash", times(100, 0.5), { warmup = 0 }) })
    assert.matches("\nWarning: 1 of 2 points look disturbed %(flash: IQR %d+ %% of the median without warm%-up%)", (runs:summary()))
    runs = fake.make(folder .. "/b", { "mode" }, { timed("none", times(100, 0.05), { device = "cpu" }) })
    runs.points[1].metrics.cpu_percent = 40
    assert.matches("only 40 % of one core", statistics.warning(runs), 1, true)
  end)

  it("warn of a machine that was busy when the record was made", function()
    local function with(load, options)
      local point = timed("none", times(100, 0.05), options)
      point.result = point.result or {}
      point.result.load = load
      return statistics.warning(fake.make(folder .. "/" .. tostring(load):match("%x+$"), { "mode" }, { point }))
    end
    assert.is_nil(with { cores = 4, other_cpu_percent = 150, load_before = 9, load_after = 9 })
    assert.matches("other processes used 3.0 of 4 cores, load average 3.5 before and 4.5 after",
      with { cores = 4, other_cpu_percent = 300, load_before = 3.5, load_after = 4.5 }, 1, true)
    assert.is_nil(with({ cores = 4, other_cpu_percent = 300 }, { nproc = 4 }))
    assert.matches("2 other processes on the GPU before it began, used 30 %", with { gpu_processes = 2, gpu_percent_before = 30 }, 1, true)
    assert.matches("the GPU was used 40 % before it began", with { gpu_processes = 0, gpu_percent_before = 40 }, 1, true)
    assert.is_nil(with { gpu_processes = 0, gpu_percent_before = 5 })
  end)
end)

describe("moonshard compare", function()
  it("says within noise, also as JSON, and names results without an interval", function()
    local runs = fake.make(folder, { "mode" }, { timed("none", times(100, 0.05)), timed("flash", times(101, 0.05)),
      timed("ghost", times(150, 0.05)), timed("auto", { 90, 91 }) })
    local text = tostring(ms.compare(runs.path))
    assert.matches("median_time_ms%s+%S+%s+%S+%s+1.01x within noise%s+%S+%s+1.5x%s+%S+%s+0.%d+x\n", text)
    assert.matches("peak_memory_mb%s+100%s+100%s+1x%s+100", text)
    assert.matches("auto: n = 2, no interval", text, 1, true)
    local result = support.run(("%s compare --json %s"):format(support.shell_quoted(support.program()), runs.path), { folder = folder })
    assert.matches("contains 1", support.parse_json(result.out).tables[2].notes[2], 1, true)
  end)
end)

describe("a claim about times", function()
  local function verdict(check, runs)
    local judged = expect.judge({ { claim = "x", check = check } }, runs)[1]
    return judged.verdict, judged.figures
  end

  it("is undecided where the interval contains the bound, with the numbers", function()
    local word, figures = verdict(claims.time("flash", "none", nil, 1), pair(times(99, 0.05), times(100, 0.05)))
    assert.are.equal("undecided", word)
    assert.matches("flash / none: 0.99x; 95 %% interval 0%.%d+ … 1%.%d+ contains the bound 0.995", figures)
    word, figures = verdict(claims.time("flash", "none", nil, 1), pair(times(70, 0.05), times(100, 0.05)))
    assert.are.equal("confirmed", word)
    assert.matches("95 % intervals exclude the bound", figures, 1, true)
    assert.are.equal("refuted", (verdict(claims.time("flash", "none", nil, 1), pair(times(140, 0.05), times(100, 0.05)))))
  end)

  it("is refuted by one pair that is surely outside, whatever the others say", function()
    local points = {}
    for length, slow in pairs { [64] = 100, [128] = 150 } do
      points[#points + 1] = timed("none", times(100, 0.05), { seq_length = length })
      points[#points + 1] = timed("flash", times(slow, 0.05), { seq_length = length })
    end
    local runs = fake.make(folder, { "mode", "seq_length" }, points)
    local word, figures = verdict(claims.time("flash", "none", nil, 1), runs)
    assert.are.equal("refuted", word)
    assert.matches("95 %% interval 1%.4%d+ … 1%.5%d+ at seq_length 128 is beyond the bound 0.995", figures)
    assert.are.equal("undecided", (verdict(claims.time("flash", "none", 1), runs)))
  end)

  it("without an interval says so, and memory has none", function()
    local word, figures = verdict(claims.time("flash", "none", nil, 1), pair({ 5, 6 }, { 10, 11 }))
    assert.are.equal("confirmed", word)
    assert.matches("n = 2, no interval, so noise is not in the verdict", figures, 1, true)
    word, figures = verdict(claims.memory("flash", "none", nil, 1), pair({ 5, 6 }, { 10, 11 }))
    assert.are.equal("refuted", word)
    assert.are.equal("flash / none: 1x", figures)
  end)

  it("has the bound of the native verdict where it is 1", function()
    local ratio_claim = package.loaded["moonshard.native"].analysis.ratio_claim
    for _, side in ipairs { 1, -1 } do
      local rule = side == 1 and { of = "a", to = "b", least = 1 } or { of = "a", to = "b", most = 1 }
      for factor, wanted in pairs { [0.99] = false, [1.01] = true } do
        local figures = { { of = 1 + side * factor * claims.noticeable, to = 1, at = "" } }
        assert.are.equal(wanted, ratio_claim(rule, figures).holds)
      end
    end
  end)

  it("of throughput, of a bound and of a trade-off knows the noise, too", function()
    local runs = pair(times(99, 0.05), times(100, 0.05))
    local rate = claims.ratio { of = "flash", to = "none", metric = "tokens_per_s", least = 1 }
    assert.are.equal("undecided", (verdict(rate, runs)))
    assert.are.equal("undecided", (verdict(claims.bound { metric = "median_time_ms", most = 100, unit = "ms" }, runs)))
    assert.are.equal("refuted", (verdict(claims.bound { metric = "median_time_ms", most = 50, unit = "ms" }, runs)))
    runs = fake.make(folder .. "/c", { "mode" }, { timed("none", times(100, 0.05)), timed("flash", times(150, 0.05)),
      timed("ghost", times(152, 0.05)), timed("auto", times(400, 0.05)) })
    local function best(mode) return claims.tradeoff { best = mode, of = { "flash", "ghost", "auto" } } end
    assert.are.equal("undecided", (verdict(best "flash", runs)))
    assert.are.equal("undecided", (verdict(best "ghost", runs)))
    assert.are.equal("refuted", (verdict(best "auto", runs)))
  end)

  it("is counted and printed with its own word", function()
    local text, markdown = expect.describe { { claim = "a", verdict = "undecided", figures = "1x" },
      { claim = "b", verdict = "confirmed", figures = "" } }
    assert.matches("Claims: 1 confirmed, 0 refuted, 1 undecided, 0 not measured\n  undecided     a\n", text, 1, true)
    assert.matches("| undecided | a | 1x |", markdown, 1, true)
  end)
end)

describe("an exponent", function()
  local function runs_of(lengths)
    local points = {}
    for _, length in ipairs(lengths) do
      points[#points + 1] = { options = { mode = "flash", seq_length = length }, metrics = fake.metrics(length, 10 + length),
        result = { time = { phases_ms = { forward = { median = length / 2 } } } } }
    end
    return fake.make(folder .. "/" .. #lengths, { "seq_length" }, points)
  end
  local check = claims.growth { quantity = "forward", mode = "flash", verdicts = { "O(T)" } }

  it("is not printed from two points, and the reason is", function()
    local text = tostring(ms.analyze.scaling(runs_of { 64, 128 }))
    assert.is_nil(text:find("1.00", 1, true), text)
    assert.matches("2 points, no exponent: a power law goes through any two points, so three or more are needed", text, 1, true)
    local holds, figures = check(runs_of { 64, 128 })
    assert.are.equal("undecided", holds)
    assert.is_nil(figures:find("T^", 1, true), figures)
    assert.matches("flash: 2 points, no exponent", figures, 1, true)
    local spec = require("moonshard.plots").spec(runs_of { 64, 128 }, "scaling")
    for _, panel in ipairs(spec.panels) do assert.is_nil(panel.references) end
    assert.matches("No fit: 2 points", spec.note, 1, true)
  end)

  it("of three points is printed as before", function()
    local text = tostring(ms.analyze.scaling(runs_of { 64, 128, 256 }))
    assert.matches("forward.*1.00.*O%(T%)", text)
    assert.is_nil(text:find("no exponent", 1, true))
    assert.is_true((check(runs_of { 64, 128, 256 })))
    assert.are.equal(1, #require("moonshard.plots").spec(runs_of { 64, 128, 256 }, "scaling").panels[1].references)
  end)
end)
