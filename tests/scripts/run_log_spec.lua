--- ms.log.run: run folders of any script, which load, print and are checked as those of sweeps; what an interrupted one keeps.
local support = require "tests.support.support"
local ms = require "moonshard"
local lists = require "moonshard.lists"

local folder
before_each(function() folder = support.memory_folder() end)
after_each(function() support.remove(folder) end)

local program = support.run_program

describe("ms.log.run", function()
  it("writes points with steps and metrics of their own, which load as any others", function()
    local run = ms.log.run { name = "mine", out = folder, options = { lr = 0.1, kind = "sgd" }, tags = { "a" }, note = "n" }
    for step = 1, 4 do run:log(step, { loss = 8 / step, accuracy = step / 4 }) end
    assert.are.equal(run.path, run:finish { score = 0.5, verdict = "good" })
    run:point({ lr = 0.2, kind = "sgd" }):fail("diverged\nat once")
    run:point({ lr = 0.2, kind = "sgd" }):finish { score = 0.7 }
    local runs = ms.load(run.path)
    assert.are.same({ "mine", { "kind", "lr" }, { "a" }, "n" }, { runs.name, runs.axes, runs.tags, runs.note })
    assert.are.same({ "ok", "failed", "ok" }, lists.column(runs.points, "status"))
    assert.are.equal("diverged", runs[2].error)
    local first = runs[1]
    assert.are.same({ 0.5, "good", 2, 4 }, { first.metrics.score, first.metrics.verdict, first.metrics.final_loss, #first.result.steps })
    assert.are.same({ "score", "verdict" }, first.result.own_metrics)
    assert.are.equal(0.75, first.result.steps[3].accuracy)
    assert.are.equal(0.7, runs:best { "score", most = true }.metrics.score)
    assert.are.equal(0.5, runs:best { "score", least = true }.metrics.score)
    assert.matches("lr +status +median ms", tostring(runs))
    assert.matches("score", support.read(run.path .. "/index.csv"))
    assert.matches("step 4: accuracy 1, loss 2\n", support.read(("%s/points/%s/log.rank0.txt"):format(run.path, run.id)), 1, true)
    run:point({ lr = 0.3 }):finish()
    run:point({ lr = 0.4 }):finish { median_time_ms = 5 }
    local checked = program("doctor " .. run.path)
    assert.are.equal(0, checked.code, checked.out .. checked.err)
  end)

  it("keeps the steps of a script that ends by an error, and of one that is killed", function()
    support.write(folder .. "/dies.lua", [[
local ms = require "moonshard"
local run = ms.log.run { out = ..., options = { how = "error" } }
for step = 1, 3 do run:log(step, { loss = step }) end
error("boom")]])
    program(("run %s/dies.lua %s/a"):format(folder, folder))
    support.write(folder .. "/killed.lua", [[
local ms = require "moonshard"
local run = ms.log.run { out = ..., options = { how = "kill" } }
run:log(1, { loss = 1 })
local from = os.time()
repeat until os.time() >= from + 2
run:log(2, { loss = 2 })
os.execute("kill -9 $PPID")]])
    program(("run %s/killed.lua %s/b"):format(folder, folder))
    for out, count in pairs { a = 3, b = 2 } do
      local name = require("moonshard.native").files.list(folder .. "/" .. out)[1]
      local point = ms.load(("%s/%s/%s"):format(folder, out, name:gsub("/$", "")))[1]
      assert.are.same({ "interrupted", count }, { point.status, #point.result.steps })
      assert.matches("no finish%(%): the script is at work or ended after step " .. count, point.error)
    end
  end)

  it("takes steps as it sees them in a folder that is still written", function()
    local run = ms.log.run { out = folder }
    assert.are.equal("interrupted", ms.load(run.path)[1].status)
    run:finish()
    assert.are.equal("ok", ms.load(run.path)[1].status)
  end)

  it("says what is wrong at the caller's line", function()
    local function failing(f, ...)
      local ok, message = pcall(f, ...)
      assert.is_false(ok)
      assert.matches("run_log_spec.lua:%d+: ", message)
      return message
    end
    assert.matches("ms.log.run: unknown option 'nmae'; did you mean 'name'?", failing(function() ms.log.run { nmae = "x" } end), 1, true)
    assert.matches("ms.log.run: option 'options': expected a table, got 3", failing(function() ms.log.run { options = 3 } end), 1, true)
    assert.matches("ms.log.run: options: 'a': expected a number, a text or a boolean, got table",
      failing(function() ms.log.run { out = folder, options = { a = {} } } end), 1, true)
    local run = ms.log.run { out = folder }
    assert.matches("run:log: expected the number of a step first, got string", failing(function() run:log("x") end), 1, true)
    assert.matches("run:log: 'loss': expected a number, a text or a boolean, got table",
      failing(function() run:log(1, { loss = {} }) end), 1, true)
    assert.matches("run:finish: expected a table { name = value }, got number", failing(function() run:finish(3) end), 1, true)
    run:finish {}
    assert.matches("run:log: expected a point at work, got one that has ended", failing(function() run:log(1) end), 1, true)
  end)
end)
