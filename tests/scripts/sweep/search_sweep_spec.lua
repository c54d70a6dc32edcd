--- Sweeps that look for the best point, and points side by side.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local place
before_each(function() place = support.place() end)
after_each(function() place:remove() end)

local own = [[
  local runs = ms.sweep { out = "OUT", name = "look",
    search = { trials = <TRIALS>, seed = 1, minimize = "loss", startup = 6, <PRUNE>
      space = { lr = { log = { 1e-4, 1 } }, depth = { int = { 1, 6 } }, act = { "relu", "gelu" } } },
    run = function(point, log)
      local loss
      for step = 1, 4 do
        loss = (math.log10(point.lr) + 2) ^ 2 + (point.depth - 4) ^ 2 / 4 + (point.act == "gelu" and 0 or 0.5) + 1 / step
        log(step, { loss = loss })
        if <SLEEP> then os.execute("sleep 0.15") end
      end
      return { loss = loss }
    end }:run(<RUN>)
  print(runs)]]

local function script(values)
  local text = own
  for key, value in pairs { TRIALS = "14", PRUNE = "", SLEEP = "false", RUN = "{ parallel = 2 }" } do
    text = text:gsub("<" .. key .. ">", ((values[key] or value):gsub("%%", "%%%%")))
  end
  place:script(text)
end

--- Values and losses of a folder's points, in the order they were drawn.
local function drawn(path)
  local rows = {}
  for i, point in ipairs(ms.load(path).points) do
    rows[i] = ("%.12g %d %s %s"):format(point.options.lr, point.options.depth, point.options.act, point.status)
  end
  return rows
end

describe("a search", function()
  it("tries points, tells the best, and draws the same again", function()
    script {}
    local result = place:run("run sweep.lua")
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("sweep look: 14 points into", result.out, 1, true)
    assert.matches("2 points side by side share this machine", result.out, 1, true)
    local first = drawn(place:run_path())
    assert.are.equal(14, #first)
    local best = ms.load(place:run_path()):best { "loss", least = true }
    assert.matches(("best of 14: loss %.6g at"):format(best.metrics.loss), result.out, 1, true)
    assert.matches("no defects", place:run("doctor " .. place:run_path()).out, 1, true)
    os.execute("rm -r " .. place.path .. "/results")
    script { RUN = "{ parallel = 1 }" }
    assert.are.equal(0, place:run("run sweep.lua").code)
    local second = drawn(place:run_path())
    for i = 1, 6 do assert.are.equal(first[i], second[i]) end -- at random: what others found does not matter
  end)

  it("goes on where it was killed, as if nobody had", function()
    script { SLEEP = "true", RUN = "{}" }
    local parent = place:start("run sweep.lua")
    assert.is_true(support.wait_for(function()
      return place:run_path() and #support.list(place:run_path() .. "/points") >= 4
    end, 30))
    support.kill(parent)
    assert.is_true(support.wait_end(parent, 10))
    local path = place:run_path()
    script { RUN = "{}" }
    local result = place:run("run sweep.lua --resume " .. path)
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("already done", result.out, 1, true)
    local broken = drawn(path)
    os.execute("rm -r " .. place.path .. "/results")
    assert.are.equal(0, place:run("run sweep.lua").code)
    assert.are.same(drawn(place:run_path()), broken)
    script { TRIALS = "3" }
    local refused = place:run("run sweep.lua --resume " .. place:run_path())
    assert.are.equal(1, refused.code)
    assert.matches("expected a run of this search", refused.err, 1, true)
  end)

  it("stops points that are worse than the median", function()
    script { SLEEP = "true", PRUNE = "prune = { after = 1, startup = 3 },", TRIALS = "12" }
    local result = place:run("run sweep.lua")
    assert.are.equal(0, result.code, result.out .. result.err) -- a stopped trial is no failure
    local runs = ms.load(place:run_path())
    assert.is_true(runs:count("skipped") >= 2, result.out)
    for _, point in ipairs(runs.points) do
      if point.status == "skipped" then
        assert.matches("^pruned at step %d: its best loss is more than the median of earlier points there", point.error)
        assert.is_true(#point.result.steps >= 2)
      end
    end
  end)

  it("of experiments checks its options before it begins", function()
    local function refused(words, text)
      place:script(words)
      local result = place:run("run sweep.lua")
      assert.are.equal(1, result.code)
      assert.matches(text, result.err, 1, true)
      assert.is_nil(place:run_path())
    end
    refused([[ms.sweep { TINY, search = { trials = 2, minimize = "final_loss", space = { bach_size = { 1, 2, 3 } } } }]],
      "unknown option 'bach_size'; did you mean 'batch_size'?")
    refused([[ms.sweep { TINY, grid = { mode = { "none" } },
      search = { trials = 2, minimize = "final_loss", space = { lr = { 0.1, 0.2 } } } }]],
      "expected it instead of grid and zip, got both")
    refused([[ms.sweep { TINY, search = { trials = 2, space = { lr = { 0.1, 0.2 } } } }]], "expected minimize or maximize")
    refused([[ms.sweep { TINY, grid = { seq_length = { 8 } } }:run { parallel = 0 }]], "expected a whole number from 1 to 1024, got 0")
  end)
end)

describe("points side by side", function()
  it("of experiments give what they give one by one", function()
    place:script [[ms.sweep { out = "OUT", TINY, seed = 3, secure = false,
      grid = { mode = { "none", "ghost", "flash", "materialize" } } }:run()]]
    local result = place:run("sweep sweep.lua --workers 3")
    assert.are.equal(0, result.code, result.out .. result.err)
    local together = ms.load(place:run_path())
    os.execute("rm -r " .. place.path .. "/results")
    assert.are.equal(0, place:run("sweep sweep.lua").code)
    local alone = ms.load(place:run_path())
    for i = 1, 4 do
      assert.are.equal("ok", together.points[i].status)
      assert.is_near(alone.points[i].metrics.final_loss, together.points[i].metrics.final_loss, 1e-6)
    end
  end)

  it("end with the first that cannot be started, and are all waited for", function()
    place:script [[
      local count = 0
      ms.sweep { out = "OUT", grid = { x = { 1, 2, 3, 4, 5, 6 } },
        run = function(point)
          if point.x == 2 then error "no" end
          return { y = point.x }
        end }:run { parallel = 3, fail_fast = true }]]
    local result = place:run("run sweep.lua")
    assert.are.equal(5, result.code)
    local statuses = {}
    for _, point in ipairs(ms.load(place:run_path()).points) do statuses[point.status] = (statuses[point.status] or 0) + 1 end
    assert.are.equal(1, statuses.failed)
    assert.is_nil(statuses.running)
    assert.is_true((statuses.ok or 0) >= 1 and (statuses.ok or 0) <= 4)
  end)
end)
