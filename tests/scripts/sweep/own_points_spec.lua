--- Points of a script: its own function, its own engines; going on with `moonshard run`; dry runs; tags and notes.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local place
before_each(function() place = support.place() end)
after_each(function() place:remove() end)

local function typed_line(out) return out:match("go on with: ([^\n]+)") end

describe("a function of the script", function()
  it("runs each point in a process of its own, and its metrics are columns everywhere", function()
    place:script([[
      local base = 10
      local first = ms.sweep { out = "OUT", name = "first", TINY, grid = { seq_length = { 8 } } }:run()
      assert(#first == 1 and first[1].status == "ok")
      local runs = ms.sweep { out = "OUT", name = "own", grid = { depth = { 1, 2 }, kind = { "a", "b" } },
        tags = { "x", "y" }, note = "why",
        run = function(point, log)
          for step = 1, 3 do log(step, { loss = base / step, extra = point.depth }) end
          return { score = base * point.depth, word = point.kind }
        end }:run()
      print(runs)
      print("after", #runs)]])
    local result = place:run("run sweep.lua")
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("depth +kind +status .* loss +score +word", result.out)
    assert.is_nil(result.out:find("tokens/s +loss +score"))
    assert.matches("after\t4", result.out, 1, true)
    assert.matches("depth=2 kind=b: score 20, word b", result.out, 1, true)
    local names = support.list(place.path .. "/results")
    assert.are.equal(2, #names) -- the first sweep has not run again
    local path = place.path .. "/results/" .. (names[1]:match("_own$") and names[1] or names[2])
    local runs = ms.load(path)
    assert.are.equal(4, runs:count("ok"))
    assert.are.same({ "x", "y" }, runs.tags)
    assert.are.equal("tags: x, y; note: why", runs:labels())
    assert.are.equal(20, runs:best("score").metrics.score) -- more of what is called so is better
    local best = runs:best { "score", least = true }
    assert.are.equal(10, best.metrics.score)
    assert.are.equal(3, #best.result.steps)
    assert.are.equal(1, best.result.steps[3].extra)
    assert.is_near(10 / 3, best.metrics.final_loss, 1e-9)
    assert.matches("score", support.read(path .. "/index.csv"), 1, true)
    assert.matches("score", runs:tabulate():to "csv", 1, true)
    assert.matches("tags: x, y; note: why", support.read(path .. "/summary.txt"), 1, true)
    assert.matches("tags: x, y; note: why", support.read(path .. "/report.html"), 1, true)
    assert.matches("own_metrics", runs:plot("own_metrics")[1], 1, true)
    local doctor = place:run("doctor " .. path)
    assert.matches("no defects", doctor.out, 1, true)
    local others = place.path .. "/results/" .. (names[1]:match("_own$") and names[2] or names[1])
    local compared = place:run("compare " .. path .. " " .. others).out
    assert.matches("tags +x, y", compared)
    assert.matches("\nscore\n", compared, 1, true)
    local both = ms.load { path, others }
    assert.are.equal(5, #both)
    assert.are.equal("run", both.axes[1])
    assert.are.equal("own", both.points[1].options.run)
    local ok, message = pcall(ms.load, { path, place.path .. "/nowhere" })
    assert.is_false(ok)
    assert.matches("nowhere", message, 1, true)
  end)

  it("that fails, runs out of memory, takes too long or returns no table has a status", function()
    place:script([[
      local limited = { model = "llama3-tiny", device = "cpu", iters = 1, memory_limit_mb = 4, check_memory = false }
      ms.sweep { out = "OUT", grid = { way = { "good", "error", "memory", "limit", "words", "slow",
        "nothing", "killed" } }, run = function(point)
        if point.way == "error" then error("a mistake") end
        if point.way == "memory" then error("memory: none left") end
        if point.way == "limit" then error(ms.run(limited).error) end
        if point.way == "words" then error("shared memory: a mistake") end
        if point.way == "slow" then while true do end end
        if point.way == "nothing" then return nil end
        if point.way == "killed" then os.execute("kill -9 $PPID") end
        return { value = 1 }
      end }:run { timeout = 6 }]])
    local result = place:run("sweep sweep.lua")
    assert.are.equal(5, result.code, result.out .. result.err)
    local status = {}
    for _, point in ipairs(ms.load(place:run_path()).points) do status[point.options.way] = { point.status, point.error } end
    assert.are.equal("ok", status.good[1])
    assert.are.equal("failed", status.error[1])
    assert.matches("a mistake", status.error[2], 1, true)
    assert.are.equal("oom", status.memory[1])
    assert.are.equal("oom", status.limit[1])
    assert.are.equal("failed", status.words[1])
    assert.are.equal("timeout", status.slow[1])
    assert.are.equal("failed", status.killed[1])
    assert.are.equal("failed", status.nothing[1])
    assert.matches("ms.sweep: run: expected a table { name = value }, got nil", status.nothing[2], 1, true)
    local path = place:run_path()
    support.write(place.path .. "/sweep.lua", (support.read(place.path .. "/sweep.lua"):gsub("if point.way[^\n]*", "")))
    result = place:run("run sweep.lua --resume " .. path)
    assert.matches("resume: 1 done, 2 out of memory stand", result.out, 1, true)
    assert.are.equal(6, ms.load(path):count("ok"), result.out .. result.err)
  end)

  it("dies with its parent, and a resumed sweep runs it again", function()
    place:script([[
      ms.sweep { out = "OUT", grid = { way = { 1, 2 } }, run = function(point, log)
        log(1, { loss = 1 })
        if point.way == 2 and not io.open("well") then while true do end end
        return { value = point.way }
      end }:run()]])
    local parent = place:start("run sweep.lua")
    local function is_at_second()
      local path = place:run_path()
      return path and support.exists(path .. "/sweep.json") and ms.load(path).points[2].status == "running"
    end
    assert.is_true(support.wait_for(is_at_second, 20))
    local function children() return support.read(("/proc/%d/task/%d/children"):format(parent, parent)) or "" end
    assert.is_true(support.wait_for(function() return children():match("%d+") ~= nil end, 10))
    local child = tonumber(children():match("%d+"))
    support.kill(parent)
    assert.is_true(support.wait_end(child, 10), "the point lives on")
    support.write(place.path .. "/well", "")
    local result = place:run("run sweep.lua --resume " .. place:run_path())
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("resume: 1 done, 1 to do: way=2 (was cut off)", result.out, 1, true)
    assert.are.equal(2, ms.load(place:run_path()):count("ok"))
  end)

  it("needs a script", function()
    local ok, message = pcall(ms.sweep, { grid = { way = { 1 } }, run = function() return {} end })
    assert.is_false(ok)
    assert.matches("option 'run': expected a script that moonshard run or moonshard sweep has started", message, 1, true)
  end)
end)

it("points know the engines that their script has registered", function()
  place:script([[
    ms.register_engine("mine", { norms = function(_, a, g) return g:mul(g):sum(2) end, doc = "test" })
    local runs = ms.sweep { out = "OUT", TINY, profile = "trace", grid = { mode = { "none", "mine" } } }:run()
    for _, point in ipairs(runs.points) do print(point.options.mode, point.status, point.error) end
    local ranks = ms.sweep { out = "OUT", TINY, parallel = "fsdp", nproc = 2, grid = { mode = { "mine" } } }:run()
    print("ranks", ranks[1].status, ranks[1].result.sharding.world)]])
  local result = place:run("run sweep.lua")
  assert.is_nil(result.out:find("unknown", 1, true), result.out)
  assert.matches("ranks\tok\t2", result.out, 1, true)
  assert.matches("none\tok", result.out, 1, true)
  assert.matches("mine\tok", result.out, 1, true)
  local names = support.list(place.path .. "/results")
  table.sort(names)
  local path = place.path .. "/results/" .. names[1]
  local files = support.list(("%s/points/%s"):format(path, ms.load(path).points[2].id))
  assert.matches("trace", table.concat(files, " "), 1, true)
end)

describe("moonshard run", function()
  it("goes on with a sweep by --resume, and the line that it prints does", function()
    place:script([[ms.sweep { out = "OUT", TINY, grid = { seq_length = { 8, 16 } } }:run { budget = 0.001 }]])
    local result = place:run("run sweep.lua")
    local path = place:run_path()
    assert.are.equal(1, ms.load(path):count("ok"), result.out)
    local line = typed_line(result.out)
    assert.matches("moonshard run sweep.lua --resume ", line, 1, true)
    result = support.run(line, { folder = place.path })
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("resume: 1 done, 1 to do", result.out, 1, true)
    assert.are.equal(2, ms.load(path):count("ok"))
    assert.are.equal(1, #support.list(place.path .. "/results"))
    result = place:run("run sweep.lua --resume=" .. place.path .. "/nowhere")
    assert.are.equal(1, result.code)
    assert.matches("nowhere", result.err, 1, true)
  end)

  it("leaves --resume to a script that reads its words and means something else", function()
    place:script([[print(...)]])
    assert.are.equal("--resume\tcheckpoint\n", place:run("run sweep.lua --resume checkpoint").out)
  end)
end)

it("a script goes on after a dry run, with results of no point", function()
  place:script([[
    local runs = ms.sweep { out = "OUT", TINY, grid = { mode = { "none", "ghost" } } }:run()
    print(runs, runs:overhead(), runs:best(), #runs:plot "all", #runs, runs:count "ok", runs.path ~= nil, runs:summary())
    for _, name in ipairs { "overhead", "memory", "stages", "phases", "scaling", "bottleneck", "tradeoff" } do
      print(name, ms.analyze[name](runs))
    end
    for _, which in ipairs { "points", "overhead", "phases", "memory" } do print(runs:tabulate(which)) end
    print("went on", runs.is_dry)]])
  local result = place:run("sweep sweep.lua --dry-run")
  assert.are.equal(0, result.code, result.err)
  assert.matches("went on\ttrue", result.out, 1, true)
  assert.are.same({}, support.list(place.path .. "/results"))
end)
