--- Searches: random and TPE on known functions, bounds, seeds, points under way, the pruner's rule, and what a sweep asks of them.
require "moonshard"
local lists = require "moonshard.lists"
local generators = require "moonshard.search.generator"
local median = require "moonshard.search.median"
local requests = require "moonshard.search.request"
local studies = require "moonshard.search.study"
local tpe = require "moonshard.search.tpe"
local watches = require "moonshard.search.watch"

local function branin(v)
  local x, y = v.x, v.y
  return (y - 5.1 / (4 * math.pi ^ 2) * x ^ 2 + 5 / math.pi * x - 6) ^ 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10
end

local penalty = { sgd = 0.6, adam = 0, lion = 0.3 }
local function mixed(v)
  return (math.log10(v.lr) + 3) ^ 2 + penalty[v.optimizer] + 0.1 * math.abs(v.layers - 4) + 0.05 * (v.width - 1.3) ^ 2
end

local plane = { x = { uniform = { -5, 10 } }, y = { uniform = { 0, 15 } } }
local mixed_space = { lr = { log = { 1e-6, 1 } }, optimizer = { "sgd", "adam", "lion" }, layers = { int = { 1, 12 } },
  width = { 0.5, 4.0 } }

local function run(space, objective, options)
  local study = studies.new(space, options)
  for point in function() return study:ask() end do study:tell(point, objective(point.values)) end
  return study
end

local function mean_best(space, objective, method, trials)
  local sum = 0
  for seed = 1, 20 do sum = sum + run(space, objective, { method = method, seed = seed, trials = trials }):best().value end
  return sum / 20
end

local function messages(...)
  local ok, message = pcall(...)
  assert.is_false(ok)
  return message
end

describe("the generator", function()
  it("is even and normal, and streams differ", function()
    local generator, sum, squares, cells = generators.new(7), 0, 0, { 0, 0, 0, 0, 0, 0, 0, 0 }
    for _ = 1, 20000 do
      local u, z = generator:uniform(), generator:normal()
      assert.is_true(u >= 0 and u < 1)
      cells[math.floor(u * 8) + 1] = cells[math.floor(u * 8) + 1] + 1
      sum, squares = sum + z, squares + z * z
    end
    for _, count in ipairs(cells) do assert.is_true(math.abs(count - 2500) < 5 * math.sqrt(2500)) end
    assert.is_true(math.abs(sum / 20000) < 5 / math.sqrt(20000))
    assert.is_true(math.abs(squares / 20000 - 1) < 5 * math.sqrt(2 / 20000))
    local seen = {}
    for seed = 0, 30 do
      for stream = 0, 30 do
        local first = generators.new(seed, stream):uniform()
        assert.is_nil(seen[first])
        seen[first] = true
      end
    end
  end)
end)

describe("TPE", function()
  it("beats random search over 20 seeds at the same number of points", function()
    assert.is_true(mean_best(plane, branin, "tpe", 60) < 0.6 * mean_best(plane, branin, "random", 60))
    assert.is_true(mean_best(mixed_space, mixed, "tpe", 60) < 0.8 * mean_best(mixed_space, mixed, "random", 60))
  end)

  it("takes the direction: the most of the opposite is the same search", function()
    local least = run(plane, branin, { seed = 3, trials = 30 })
    local most = run(plane, function(v) return -branin(v) end, { seed = 3, trials = 30, direction = "maximize" })
    assert.are.equal(least:best().value, -most:best().value)
    assert.are.same(least:best().values, most:best().values)
  end)

  it("knows the normal distribution and the share of good points", function()
    for z, p in pairs { [0] = 0.5, [1] = 0.8413447, [-1] = 0.1586553, [2.5] = 0.9937903, [-4] = 3.167e-5 } do
      assert.is_true(math.abs(tpe.normal_cdf(z) - p) < 2e-7)
    end
    assert.are.same({ 1, 1, 2, 10, 25 }, { tpe.num_good(5), tpe.num_good(10), tpe.num_good(11), tpe.num_good(100), tpe.num_good(1000) })
  end)
end)

describe("points", function()
  it("lie within bounds and are of their kinds", function()
    local seen = {}
    for _, method in ipairs { "tpe", "random" } do
      for _, point in ipairs(run(mixed_space, mixed, { method = method, seed = 5, trials = 150 }).points) do
        local v = point.values
        assert.is_true(v.lr >= 1e-6 and v.lr <= 1 and v.width >= 0.5 and v.width <= 4)
        assert.is_true(v.layers >= 1 and v.layers <= 12 and v.layers == math.floor(v.layers))
        assert.is_not_nil(penalty[v.optimizer])
        seen[v.layers], seen[v.optimizer] = true, true
      end
    end
    for _, value in ipairs { 1, 12, "sgd", "adam", "lion" } do assert.is_true(seen[value]) end
  end)

  it("are even on their scales", function()
    local below, first = 0, 0
    for _, point in ipairs(run({ lr = { log = { 1e-4, 1 } }, n = { int = { 1, 4 } } }, function() return 0 end,
      { method = "random", trials = 2000 }).points) do
      below = below + (point.values.lr < 1e-2 and 1 or 0)
      first = first + (point.values.n == 1 and 1 or 0)
    end
    assert.is_true(math.abs(below - 1000) < 5 * math.sqrt(500))
    assert.is_true(math.abs(first - 500) < 5 * math.sqrt(375))
  end)

  it("are the same by seed, also when a search goes on in another process", function()
    local function values(study) return lists.map(study.points, function(point) return point.values end) end
    local whole = run(mixed_space, mixed, { seed = 9, trials = 30 })
    assert.are.same(values(whole), values(run(mixed_space, mixed, { seed = 9, trials = 30 })))
    assert.are_not.same(values(whole), values(run(mixed_space, mixed, { seed = 10, trials = 30 })))
    local resumed = studies.new(mixed_space, { seed = 9, trials = 30 })
    for i = 1, 17 do resumed:tell(resumed:add(whole.points[i].values), whole.points[i].value) end
    for point in function() return resumed:ask() end do resumed:tell(point, mixed(point.values)) end
    assert.are.same(values(whole), values(resumed))
  end)

  it("are the same whether their code is compiled or not", function()
    local function values(study) return lists.map(study.points, function(point) return point.values end) end
    for seed = 1, 8 do
      jit.off()
      jit.flush()
      local interpreted = values(run(mixed_space, mixed, { seed = seed, trials = 40 }))
      jit.on()
      run(mixed_space, mixed, { seed = seed, trials = 40 })
      assert.are.same(interpreted, values(run(mixed_space, mixed, { seed = seed, trials = 40 })), "seed " .. seed)
    end
  end)

  it("of a finite space come once each, then no more", function()
    local seen = {}
    local study = run({ a = { "x", "y" }, b = { int = { 1, 5 } } }, function(v) return v.b end, { trials = 100, startup = 3 })
    for _, point in ipairs(study.points) do
      local key = point.values.a .. point.values.b
      assert.is_nil(seen[key])
      seen[key] = true
    end
    assert.are.equal(10, #study.points)
  end)

  it("under way keep others away, and those that failed count as bad", function()
    local function nearest(tells)
      local study = studies.new({ x = { uniform = { 0, 1 } } }, { startup = 5, seed = 2 })
      for i = 0, 20 do study:tell(study:add { x = i / 20 }, math.abs(i / 20 - 0.5)) end
      for _ = 1, 12 do
        local point = study:add { x = 0.5 }
        if tells then study:tell(point, 0 / 0) end
      end
      local sum = 0
      for _ = 1, 20 do sum = sum + math.abs(study:ask().values.x - 0.5) / 20 end
      return sum
    end
    local function plain()
      local study = studies.new({ x = { uniform = { 0, 1 } } }, { startup = 5, seed = 2 })
      for i = 0, 20 do study:tell(study:add { x = i / 20 }, math.abs(i / 20 - 0.5)) end
      return math.abs(study:ask().values.x - 0.5)
    end
    assert.is_true(plain() < 0.1)
    assert.is_true(nearest(false) > 0.1)
    assert.is_true(nearest(true) > 0.1)
  end)
end)

describe("pruning by the median", function()
  local others = { { [3] = 1, [6] = 1 }, { [3] = 2, [6] = 2 }, { [3] = 3, [6] = 3 }, { [3] = 10 } }
  local rule = { after = 5, startup = 3 }

  it("stops a point whose best is above the median of the others at that step", function()
    assert.are.same({ true, 2 }, { median.should_prune({ [6] = 2.1 }, 6, others, rule) })
    assert.are.same({ false, 2 }, { median.should_prune({ [6] = 2 }, 6, others, rule) })
    assert.are.same({ false, 2 }, { median.should_prune({ [2] = 1.5, [6] = 9 }, 6, others, rule) }, "an earlier step was good")
    assert.are.same({ true, 2.5 }, { median.should_prune({ [3] = 2.6 }, 3, others, { after = 0, startup = 4 }) }, "of an even number")
    assert.is_true((median.should_prune({ [6] = 0 / 0 }, 6, others, rule)))
  end)

  it("judges nothing too early, and nothing that too few others have", function()
    assert.is_false(median.should_prune({ [5] = 99 }, 5, others, rule))
    assert.is_false(median.should_prune({ [7] = 99 }, 7, others, rule))
    assert.is_false(median.should_prune({ [6] = 99 }, 6, others, { after = 5, startup = 4 }))
  end)

  it("counts ended points alone, in the direction of the search", function()
    local study = studies.new({ x = { uniform = { 0, 1 } } }, { direction = "maximize", prune = { after = 1, startup = 2 } })
    local function ended(value, is_pruned)
      local point = study:ask()
      study:report(point, 2, value)
      study:tell(point, value, is_pruned)
    end
    local under_way = study:ask()
    study:report(under_way, 2, 100)
    ended(5)
    local point = study:ask()
    assert.is_false(study:report(point, 2, 1))
    ended(7)
    ended(90, true)
    assert.are.same({ true, 6 }, { study:report(point, 2, 4) })
    assert.are.same({ false, 6 }, { study:report(study:ask(), 2, 6) })
    assert.are.equal(7, study:best().value)
  end)
end)

describe("spaces and options", function()
  it("that mean nothing are refused with what to write", function()
    local function refused(space, options) return messages(studies.new, space, options) end
    assert.matches("space 'b': expected { uniform = … }, { int = … } or { choice = … }, got { 8, 16 }", refused { b = { 8, 16 } }, 1, true)
    assert.matches("space 'b': expected low below high, got { 2, 1 }", refused { b = { uniform = { 2, 1 } } }, 1, true)
    assert.matches("space 'b': expected a logarithmic range above 0, got 0", refused { b = { log = { 0, 1 } } }, 1, true)
    assert.matches("space 'b': expected whole ends, got 0.5 and 3", refused { b = { int = { 0.5, 3 } } }, 1, true)
    assert.matches("space 'b': expected different choices, got x twice", refused { b = { "x", "x" } }, 1, true)
    assert.matches("space 'b': unknown option 'unifrom'; did you mean 'uniform'?", refused { b = { unifrom = { 0, 1 } } }, 1, true)
    assert.matches("space 'b': expected one of log, uniform, int, choice, got log and uniform",
      refused { b = { uniform = { 1, 2 }, log = { 1, 2 } } }, 1, true)
    assert.matches("space: expected { option = { low, high } or { choices } }, got an empty table", refused {}, 1, true)
    assert.matches("option 'method': expected tpe or random, got bayes", refused(plane, { method = "bayes" }), 1, true)
    assert.matches("option 'trials': expected a whole number from 1 on, got 0", refused(plane, { trials = 0 }), 1, true)
    assert.matches("prune: option 'after': expected 0 or more, got -1", refused(plane, { prune = { after = -1 } }), 1, true)
    assert.matches("search:tell: expected a point of search:ask()", messages(function() studies.new(plane):tell({}, 1) end), 1, true)
  end)
end)

describe("a sweep's search", function()
  local function read(more)
    local given = { trials = 4, minimize = "final_loss", space = { lr = { log = { 1e-4, 1 } } }, prune = { after = 1, startup = 1 } }
    for key, value in pairs(more or {}) do given[key] = value or nil end
    return requests.read(given, 1)
  end

  it("reads the metric of records, stops by steps, and goes on with what a folder holds", function()
    local search = read()
    assert.are.same({ "lr" }, search:axes())
    local first = search:next()
    assert.is_nil(search:step(first, 2, { loss = 1, accuracy = 3 }))
    search:done(first, { status = "ok", metrics = { final_loss = 0.5 }, result = { steps = { { step = 2, loss = 1 } } } })
    local second = search:next()
    assert.are.equal("pruned at step 2: its best loss is more than the median of earlier points there, 1",
      search:step(second, 2, { loss = 4 }))
    assert.are.same({ { step = 2, warmup = false, loss = 4 } }, second.steps)
    local stopped = { status = "skipped", error = "pruned at step 2: …", metrics = {}, result = { steps = second.steps } }
    search:done(second, stopped)
    assert.are.same({ 4, true }, { second.value, second.is_pruned })
    local third = search:next()
    search:done(third, { status = "oom", metrics = {}, result = {} })
    assert.are.equal("failed", third.state)
    assert.matches("^best of 3: final_loss 0.5 at lr=", search:describe_best())

    local again = read()
    again:replay(first.values, { status = "ok", metrics = { final_loss = 0.5 }, result = { steps = { { step = 2, loss = 1 } } } })
    again:replay({ lr = second.values.lr, other = "option" }, stopped)
    again:replay(third.values, { status = "oom", metrics = {}, result = {} })
    assert.are.same(search:next().values, again:next().values)
    assert.is_nil(again:next())
  end)

  it("is refused with the key that is wrong", function()
    assert.matches("search: expected minimize or maximize = a metric, got both", messages(read, { maximize = "x" }), 1, true)
    assert.matches("search: expected minimize or maximize = a metric, got nil", messages(read, { minimize = false }), 1, true)
    assert.matches("search: expected trials = how many points to try, got nothing", messages(read, { trials = false }), 1, true)
    assert.matches("ms.sweep: search: unknown option 'pruning'; did you mean 'prune'?", messages(read, { pruning = {} }), 1, true)
    assert.matches("ms.sweep: search: space 'n': expected", messages(read, { space = { n = { 1, 2 } } }), 1, true)
  end)

  it("follows the log of a point, line by line", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    local watch = watches.new(path)
    assert.are.same({}, watch:poll())
    file:write("hello\nstep 1: acc 0.5, loss 1.25\nstep 2: loss na")
    file:flush()
    assert.are.same({ { step = 1, values = { acc = 0.5, loss = 1.25 } } }, watch:poll())
    file:write("n\nstep 3: note text, loss 1e-05\n")
    file:close()
    local steps = watch:poll()
    assert.are.equal(2, #steps)
    assert.are.same({ step = 3, values = { loss = 1e-05 } }, steps[2])
    assert.are.same({}, watches.new("/no/such/log"):poll())
    os.remove(path)
  end)
end)
