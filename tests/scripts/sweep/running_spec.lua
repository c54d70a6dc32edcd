--- What happens to points while a sweep runs: timeouts, retries, memory, claims, Ctrl-C, two parents.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local place
before_each(function() place = support.place() end)
after_each(function() place:remove() end)

--- A stand-in for the program: a shell script that may do something else for some points, then becomes the program.
local function stand_in(text)
  local prefix = place.path .. "/prefix"
  os.execute(("mkdir -p %s/bin && ln -s %s %s/share"):format(prefix, (place.program:gsub("/bin/moonshard$", "/share")), prefix))
  support.write(prefix .. "/bin/moonshard", ("#!/bin/sh\nplace=%s\n%s\nexec %s \"$@\"\n"):format(place.path, text, place.program))
  os.execute("chmod +x " .. prefix .. "/bin/moonshard")
  return { MOONSHARD_PREFIX = prefix }
end


local function tiny_script(text) place:script((text:gsub("TINY", (support.tiny:gsub("iters = 1, ", ""))))) end

describe("a point that takes too long", function()
  it("is ended with its group, recorded as timeout, and the sweep goes on", function()
    tiny_script([[ms.sweep { out = "OUT", TINY, grid = { iters = { 100000000, 1 } } }:run()]])
    -- Alone first: how fast a short point is on a busy machine is not the question.
    local result = place:run("sweep sweep.lua --only iters=100000000 --timeout 4")
    assert.are.equal(5, result.code, result.err)
    local path = place:run_path()
    local point = ms.load(path).points[1]
    assert.are.equal("timeout", point.status)
    assert.matches("timeout: it ran longer than 4 s and was ended; last words: ", point.error, 1, true)
    assert.is_true(#point.result.log_tail > 0)
    assert.matches("timeout: timeout: it ran longer.*\n    | ", result.out)
    assert.are.same({}, place:children())

    tiny_script([[ms.sweep { out = "OUT", TINY, grid = { iters = { 100000000, 1 } } }:run { timeout = 1 }]])
    os.execute("rm -r " .. place.path .. "/results")
    result = place:run("run sweep.lua")
    assert.are.equal(5, result.code, result.err)
    assert.are.equal("timeout", ms.load(place:run_path()).points[1].status)
    assert.are_not.equal("planned", ms.load(place:run_path()).points[2].status)
  end)
end)

describe("--retry", function()
  it("runs a failed point again, and only that", function()
    local environment = stand_in([[
n=$(cat "$place/count" 2>/dev/null || echo 0); n=$((n + 1)); echo $n >"$place/count"
if [ $n = 1 ]; then echo "a bad day"; exit 7; fi]])
    place:script([[ms.sweep { out = "OUT", TINY, grid = { seq_length = { 8, 16 } } }:run { retry = 2 }]])
    local result = place:run("run sweep.lua", { environment = environment })
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("3\n", support.read(place.path .. "/count"))
    assert.matches("seq_length=8: failed: the process ended with exit code 7; last words: a bad day", result.out, 1, true)
    assert.matches("retry 1 of 2", result.out, 1, true)
    local id = ms.load(place:run_path()).points[1].id
    local log = support.read(("%s/points/%s/log.rank0.txt"):format(place:run_path(), id))
    assert.matches("attempt 1.*a bad day.*attempt 2.*step 1: loss", log)
  end)

  it("gives up after its number, with the log's end in the record and on the screen", function()
    local environment = stand_in([[echo "line one"; echo "line two"; exit 9]])
    place:script([[ms.sweep { out = "OUT", TINY }:run()]])
    local result = place:run("sweep sweep.lua --retry 1", { environment = environment })
    assert.are.equal(5, result.code, result.err)
    local point = ms.load(place:run_path()).points[1]
    assert.are.equal("failed", point.status)
    assert.are.equal(2, point.result.attempts)
    assert.matches("line one\nline two$", point.result.log_tail)
    assert.matches("    | line two", result.out, 1, true)
  end)
end)

describe("--resume", function()
  it("runs a point again whose record was lost, whatever its status word says", function()
    place:script([[ms.sweep { out = "OUT", TINY, grid = { seq_length = { 8, 16 } } }:run()]])
    place:run("sweep sweep.lua")
    local path = place:run_path()
    local id = ms.load(path).points[1].id
    os.remove(("%s/points/%s/result.json"):format(path, id))
    assert.are.equal("ok", ms.load(path).points[1].status)
    local result = place:run("sweep sweep.lua --resume " .. path)
    assert.are.equal(0, result.code, result.err)
    assert.matches("resume: 1 done, 1 to do: seq_length=8", result.out, 1, true)
    assert.is_true(ms.load(path).points[1].metrics.median_time_ms > 0)
  end)
end)

describe("a baseline that is true or false", function()
  it("is compared with like any other", function()
    for _, value in ipairs { "true", "false" } do
      local text = [[ms.sweep { out = "OUT", TINY, baseline = { deterministic = %s }, grid = { deterministic = { true, false } } }:run()]]
      place:script(text:format(value))
      local result = place:run("sweep sweep.lua")
      assert.are.equal(0, result.code, result.err)
      assert.matches("Overhead against " .. value, support.read(place:run_path() .. "/summary.txt"), 1, true)
      os.execute("rm -r " .. place.path .. "/results")
    end
  end)
end)

describe("--shuffle", function()
  it("wants a whole number", function()
    place:script([[ms.sweep { out = "OUT", TINY }:run()]])
    for _, seed in ipairs { "0.5", "nan", "1e300" } do
      local result = place:run("sweep sweep.lua --shuffle=" .. seed)
      assert.are.equal(2, result.code)
      assert.matches("expected a whole number, got '" .. seed, result.err, 1, true)
    end
    place:script([[ms.sweep { out = "OUT", TINY }:run { shuffle = 0.5 }]])
    assert.matches("expected true or a whole number as the seed, got 0.5", place:run("run sweep.lua").err, 1, true)
  end)
end)

describe("a seed_result with a bad name", function()
  it("is a warning, the sweep goes on, and the exit code says that a file is missing", function()
    place:script([[ms.sweep { out = "OUT", TINY, grid = { seq_length = { 8, 16 } },
      seed_result = function() return "../../x.json", {} end }:run()]])
    local result = place:run("sweep sweep.lua")
    assert.are.equal(1, result.code, result.err)
    assert.matches("warning: seed_result: ", result.out, 1, true)
    assert.are.equal(2, ms.load(place:run_path()):count("ok"))
  end)
end)

describe("--fail-fast", function()
  it("stops at the first failed point and says how to go on", function()
    local environment = stand_in([[if [ -f "$place/fail" ]; then exit 9; fi]])
    support.write(place.path .. "/fail", "")
    place:script([[ms.sweep { out = "OUT", TINY, grid = { seq_length = { 8, 16, 32 } } }:run()]])
    local result = place:run("sweep sweep.lua --fail-fast", { environment = environment })
    assert.are.equal(5, result.code, result.err)
    local path = place:run_path()
    assert.matches("1 failed, 2 not run", result.out, 1, true)
    assert.matches("moonshard sweep sweep.lua --fail-fast --resume " .. path, result.out, 1, true)
    os.remove(place.path .. "/fail")
    result = place:run("sweep sweep.lua --fail-fast --resume " .. path, { environment = environment })
    assert.are.equal(0, result.code, result.err)
    assert.matches("resume: 3 to do: seq_length=8 (failed), seq_length=16 (planned), ", result.out, 1, true)
    assert.are.equal(3, ms.load(path):count("ok"))
  end)
end)

describe("out of memory", function()
  local text = [[ms.sweep { out = "OUT", model = "linear-tiny", device = "cpu", iters = 1, warmup = 0, threads = 1, memory_limit_mb = 4,
    grid = { mode = { "none", "materialize" }, batch_size = { 2, 512, 1024 } } }:run()]]

  it("on a growing axis marks larger points as predicted, unless --all", function()
    place:script(text)
    local result = place:run("sweep sweep.lua --only mode=none")
    assert.are.equal(5, result.code, result.err)
    local runs = ms.load(place:run_path())
    assert.are.equal("ok", runs.points[1].status, runs.points[1].error)
    assert.are.equal("oom", runs.points[2].status)
    assert.are.equal("skipped", runs.points[3].status)
    assert.are.equal("predicted-oom: mode=none batch_size=512 ran out of memory, and this point is larger in batch_size; --all runs it",
      runs.points[3].error)
    assert.matches("oom: .*asked for [%d.]+ MiB", result.out)

    -- It stands on resuming; --all runs it; --retry-oom runs both.
    local path = place:run_path()
    result = place:run("sweep sweep.lua --only mode=none --resume " .. path)
    assert.matches("resume: 1 done, 1 out of memory stand (--retry-oom runs them again), 1 skipped stand (--all runs them), nothing to do",
      result.out, 1, true)
    assert.are.equal(5, result.code)
    result = place:run("sweep sweep.lua --only mode=none --all --dry-run --resume " .. path)
    assert.matches("batch_size=512  %x+  oom: stands\n", result.out)
    assert.matches("batch_size=1024  %x+  skipped: to do\n", result.out)
    place:run("sweep sweep.lua --only mode=none --all --resume " .. path)
    assert.are.equal("oom", ms.load(path).points[3].status)
    result = place:run("sweep sweep.lua --only mode=none --retry-oom --set memory_limit_mb=4 --dry-run --resume " .. path)
    local _, todo = result.out:gsub("to do", "")
    assert.are.equal(2, todo, result.out)
  end)

  it("of one mode says nothing about another, and an axis that does not grow predicts nothing", function()
    place:script((text:gsub("grid = ", "growing = { 'seq_length' }, grid = ")))
    place:run("sweep sweep.lua --only mode=none")
    local runs = ms.load(place:run_path())
    assert.are.equal("oom", runs.points[2].status)
    assert.are.equal("oom", runs.points[3].status)
  end)
end)

describe("each, expect, baseline and seed_result", function()
  it("see every record; claims are judged, printed and written", function()
    place:script([[
      local runs = ms.sweep { out = "OUT", name = "claims", TINY, grid = { mode = { "no_dp", "ghost" } }, baseline = "no_dp",
        each = function(record)
          print("each", record.status, record.options.mode)
          if record.options.mode == "ghost" then error("a slip") end
        end,
        seed_result = function(record, point) return point.asked.mode .. "_own.json", { took = record.metrics.median_time_ms } end,
        expect = {
          { claim = "both ran", check = function(runs) return runs:count("ok") == 2, runs:count("ok") .. " of 2" end },
          { claim = "none failed twice", check = function() return false, "0 failures" end },
          { claim = "on a GPU", check = function() return nil end },
          { claim = "with a typo", check = function(runs) return runs.pionts[1] end },
        } }:run()
      print("verdict", runs.claims[2].verdict)]])
    local result = place:run("run sweep.lua")
    assert.are.equal(0, result.code, result.err)
    assert.matches("each\tok\tnone\n", result.out, 1, true)
    assert.matches("warning: each: .*a slip", result.out)
    assert.matches("Claims: 1 confirmed, 1 refuted, 0 undecided, 2 not measured", result.out, 1, true)
    assert.matches("  confirmed     both ran\n                2 of 2", result.out, 1, true)
    assert.matches("verdict\trefuted", result.out, 1, true)
    local path = place:run_path()
    local claims = support.parse_json(support.read(path .. "/expect.json")).claims
    assert.are.same({ claim = "none failed twice", figures = "0 failures", verdict = "refuted" }, claims[2])
    assert.matches("the check raised an error: .*attempt to index", claims[4].figures)
    assert.matches("Claims: 1 confirmed", support.read(path .. "/summary.txt"), 1, true)
    assert.matches("## Claims: 1 confirmed", support.read(path .. "/summary.md"), 1, true)
    assert.matches("Verdicts: 1 confirmed, 1 refuted, 2 not measured", support.read(path .. "/report.html"), 1, true)
    assert.is_number(support.parse_json(support.read(path .. "/no_dp_own.json")).took)
    assert.is_false(support.exists(path .. "/no_dp_seq1_result.json"))
    assert.are.same({ axis = "mode", value = "no_dp" }, ms.load(path).request.baseline)
  end)
end)

describe("progress.json", function()
  it("says what is done, what runs and what is left, and is whole at any moment", function()
    tiny_script([[ms.sweep { out = "OUT", TINY, grid = { iters = { 1, 100000000 } } }:run()]])
    local parent = place:start("sweep sweep.lua")
    finally(function() support.kill(parent) end)
    local seen
    assert.is_true(support.wait_for(function()
      local path = place:run_path()
      local text = path and support.read(path .. "/progress.json")
      seen = text and support.parse_json(text)
      return seen and seen.done == 1 and seen.current ~= support.null
    end, 20), support.read(place.path .. "/out"))
    assert.are.equal("running", seen.state)
    assert.are.equal(2, seen.total)
    assert.are.equal(0, seen.failed)
    assert.are.equal("iters=100000000", seen.current.label)
    assert.is_number(seen.eta_s)
    assert.are.equal(parent, seen.pid)
    support.kill(parent, "TERM")
    assert.is_true(support.wait_end(parent, 10))
    assert.are.equal("stopped", support.parse_json(support.read(place:run_path() .. "/progress.json")).state)
  end)
end)

describe("Ctrl-C", function()
  --- A sweep whose second point runs until it is ended, or for a while.
  local function start(iters)
    tiny_script(([[ms.sweep { out = "OUT", TINY, grid = { iters = { 1, %d, 2 } } }:run()]]):format(iters))
    local parent = place:start("sweep sweep.lua")
    finally(function() support.kill(parent) end)
    assert.is_true(support.wait_for(function()
      local path = place:run_path()
      local ok, runs = pcall(ms.load, path or "none")
      return ok and runs.points[2].status == "running"
        and (support.read(("%s/points/%s/log.rank0.txt"):format(path, runs.points[2].id)) or ""):find("step 1:", 1, true)
    end, 20), support.read(place.path .. "/out"))
    return parent
  end

  it("once: the current point ends in its own time, the rest is left, the way on is said", function()
    local parent = start(15000)
    support.kill(parent, "INT")
    assert.is_true(support.wait_end(parent, 60), "it went on")
    local out, path = support.read(place.path .. "/out"), place:run_path()
    assert.matches("Ctrl-C: stopping after this point; press again to end it now", out, 1, true)
    local runs = ms.load(path)
    assert.are.equal("ok", runs.points[2].status, runs.points[2].error)
    assert.are.equal("planned", runs.points[3].status)
    assert.matches("moonshard sweep sweep.lua --resume " .. path, out, 1, true)
    assert.matches("moonshard: interrupted", support.read(place.path .. "/err"), 1, true)
    assert.is_true(support.exists(path .. "/summary.txt"))
    local page = support.read(path .. "/report.html")  -- a stopped sweep has one, too
    assert.matches("<pre>moonshard sweep sweep.lua</pre>", page, 1, true)
    assert.matches("it has not run to its end", page, 1, true)
  end)

  it("twice: the current point is ended now and recorded as interrupted", function()
    local parent = start(100000000)
    support.kill(parent, "INT")
    assert.is_true(support.wait_for(function() return (support.read(place.path .. "/out") or ""):find("Ctrl-C", 1, true) end, 5))
    support.kill(parent, "INT")
    assert.is_true(support.wait_end(parent, 10), "it went on")
    local runs = ms.load(place:run_path())
    assert.are.equal("interrupted", runs.points[2].status)
    assert.are.equal("planned", runs.points[3].status)
    assert.are.same({}, place:children(parent))
  end)

  it("ends the program with 130", function()
    tiny_script([[ms.sweep { out = "OUT", TINY, grid = { iters = { 100000000, 1 } } }:run()]])
    local result = support.run(([[cd %s; env --default-signal=INT %s sweep sweep.lua & pid=$!
      for i in $(seq 200); do grep -qs running results/*/points/*/status && break; sleep 0.05; done
      kill -INT $pid; sleep 0.5; kill -INT $pid; wait $pid]]):format(place.path, place.program))
    assert.are.equal(130, result.code, result.err)
  end)
end)

describe("two parents", function()
  it("on one folder: the second is refused and told who is there", function()
    tiny_script([[ms.sweep { out = "OUT", TINY, grid = { iters = { 100000000 } } }:run()]])
    local parent = place:start("sweep sweep.lua")
    finally(function() support.kill(parent) end)
    assert.is_true(support.wait_for(function() return #place:children(parent) > 0 end, 20))
    local path = place:run_path()
    local result = place:run("sweep sweep.lua --resume " .. path)
    assert.are.equal(1, result.code)
    assert.matches(("sweep:run: expected %s to be free, got a sweep at work in it (pid %d on "):format(path, parent), result.err, 1, true)
    support.kill(parent)
    assert.is_true(support.wait_end(parent, 5))
    -- The lock is gone with its owner, whatever ended it.
    local after = place:run("sweep sweep.lua --timeout 1 --resume " .. path)
    assert.are.equal(5, after.code, after.err)
    assert.is_false(support.exists(path .. "/.sweep.lock"))
  end)
end)
