--- Jobs that mend themselves: killed ranks, restarts, the wish to end, and what is charged for steps that were lost.
-- MOONSHARD_RANK_KILLS sets how many kills the first test makes (1,000 take about an hour and a half), MOONSHARD_KILL_SEED which ones.
local support = require "tests.support.support"

local child = support.root() .. "/tests/runtime/checkpoint/durable_child.lua"
local quoted = support.shell_quoted

local function line(folder, flags, words)
  return ("OMP_NUM_THREADS=1 %s run %s %s %s %s"):format(quoted(support.program()), flags, quoted(child), quoted(folder), words)
end

--- Starts a job and returns a function that waits for its exit code.
local function start(folder, flags, words)
  os.execute(("rm -f %s/code; (%s >>%s/log 2>&1; echo $? >%s/code) & echo $! >%s/launcher"):format(
    quoted(folder), line(folder, flags, words), quoted(folder), quoted(folder), quoted(folder)))
  return function()
    assert.is_true(support.wait_for(function() return support.read(folder .. "/code") end, 3600), support.read(folder .. "/log"))
    return tonumber(support.read(folder .. "/code"))
  end
end

local function pid_of(folder, rank) return support.read(folder .. "/pid." .. rank) end

local function allow(folder, step) support.write(folder .. "/allowed", tostring(step)) end

local function step_of(folder) return tonumber(support.read(folder .. "/step") or "") or 0 end

describe("a durable job", function()
  local folder
  before_each(function()
    folder = support.memory_folder()
    for _, name in ipairs { "broken", "straight" } do os.execute("mkdir " .. quoted(folder .. "/" .. name)) end
  end)
  after_each(function() support.remove(folder) end)

  it("whose ranks are killed ends as if nobody had", function()
    local kills, ranks = tonumber(os.getenv "MOONSHARD_RANK_KILLS") or 4, 4
    local steps = math.max(40, 7 * kills)
    local broken, straight = folder .. "/broken", folder .. "/straight"
    math.randomseed(tonumber(os.getenv "MOONSHARD_KILL_SEED") or 11)
    local done = 0
    allow(broken, 6)
    local wait = start(broken, ("--nproc %d --max-restarts %d"):format(ranks, kills), ("%d 2"):format(steps))
    while done < kills and not support.read(broken .. "/code") do
      -- A life of its own: its process ids are new, and it has got somewhere.
      local victim = math.random(0, ranks - 1)
      assert.is_true(support.wait_for(function()
        return pid_of(broken, victim) and support.exists("/proc/" .. pid_of(broken, victim)) or support.read(broken .. "/code")
      end, 60), support.read(broken .. "/log"))
      local before, goal = step_of(broken), math.random(1, 4)
      allow(broken, before + goal + 2)
      support.wait_for(function() return step_of(broken) >= before + goal or support.read(broken .. "/code") end, 60)
      os.execute(("sleep %.4f"):format(math.random() * 0.02))
      local pid = pid_of(broken, victim)
      if support.read(broken .. "/code") then break end
      os.execute(("rm -f %s/pid.*; kill -9 %s 2>/dev/null"):format(quoted(broken), pid))
      done = done + 1
    end
    allow(broken, steps)
    assert.are.equal(0, wait(), support.read(broken .. "/log"))
    assert.are.equal(kills, done)
    assert.are.equal(0, start(straight, "--nproc " .. ranks, ("%d 1000000"):format(steps))())
    local last = ("/end/step_%08d"):format(steps)
    assert.are.same({}, support.different_tensors(broken .. last, straight .. last))
    assert.are.equal(support.read(straight .. "/result"), support.read(broken .. "/result"))
    assert.matches(("^%d %d "):format(steps, steps), support.read(broken .. "/result"))
  end)

  it("charges lost steps with secret noise", function()
    local broken = folder .. "/broken"
    allow(broken, 9)
    local wait = start(broken, "--nproc 2 --max-restarts 1", "12 5 secret")
    assert.is_true(support.wait_for(function() return step_of(broken) >= 7 end, 60), support.read(broken .. "/log"))
    os.execute("kill -9 " .. pid_of(broken, 1))
    allow(broken, 12)
    assert.are.equal(0, wait(), support.read(broken .. "/log"))
    local began = tonumber(support.read(broken .. "/lives"):match "\n(%d+) ")
    local steps, charged, epsilon = support.read(broken .. "/result"):match "^(%d+) (%d+) (%S+)$"
    assert.are.equal(12, tonumber(steps))
    -- Of the steps after the checkpoint, at least those that were reported, and at most all.
    assert.is_true(tonumber(charged) >= 12 + 7 - began, support.read(broken .. "/result"))
    assert.is_true(tonumber(epsilon) > 0)
  end)

  it("that is asked to end saves, says so by its exit code, and goes on", function()
    local broken = folder .. "/broken"
    local wait = start(broken, "--nproc 2 --max-restarts 3", "100000 1000")
    assert.is_true(support.wait_for(function() return step_of(broken) >= 3 end, 60), support.read(broken .. "/log"))
    os.execute(("kill -TERM $(pgrep -P $(cat %s/launcher))"):format(quoted(broken)))
    assert.are.equal(75, wait(), support.read(broken .. "/log"))
    assert.matches("asked to end %(SIGTERM%): step %d+ is saved in", support.read(broken .. "/log"))
    local stopped = step_of(broken)
    os.execute("rm " .. quoted(broken) .. "/lives")
    assert.are.equal(0, start(broken, "--nproc 2", ("%d 1000"):format(stopped + 3))())
    local began = tonumber(support.read(broken .. "/lives"):match "^(%d+)")
    assert.is_true(began >= stopped and began <= stopped + 1, began .. " after " .. stopped)
  end)

  it("that cannot have all its ranks goes on with fewer, if it may", function()
    support.write(folder .. "/lacks.lua", [[
      local ms = require "moonshard"
      if ms.dist.rank() == 2 then os.exit(1) end
      ms.dist.barrier()
      if ms.dist.rank() == 0 then print(ms.dist.world() .. " ranks after " .. os.getenv "MOONSHARD_RESTARTS") end
    ]])
    local function run(flags)
      return support.run(("%s run --nproc 3 %s %s"):format(quoted(support.program()), flags, quoted(folder .. "/lacks.lua")))
    end
    local result = run "--max-restarts 2 --min-nproc 2"
    assert.are.equal(0, result.code, result.err)
    assert.matches("2 ranks after 2", result.out)
    assert.matches("restart 2 of 2, 2 ranks", result.err)
    assert.are.equal(1, run("--max-restarts 2").code)
  end)

  it("hears of a save that failed after its script's last line", function()
    support.write(folder .. "/last.lua", ([[
      local ms = require "moonshard"
      local model = ms.model("llama3-tiny", { device = "cpu", num_layers = 1 })
      local trainer = ms.trainer { model = model, data = ms.data.synthetic { batch_size = 1, seq_length = 4 } }
      trainer:step()
      trainer:save(%q, { wait = false })
    ]]):format(folder .. "/saved"))
    os.execute("mkdir " .. quoted(folder .. "/saved"))
    support.write(folder .. "/saved/step_00000001", "in the way")
    local result = support.run(("%s run %s"):format(quoted(support.program()), quoted(folder .. "/last.lua")))
    assert.matches("warning: the checkpoint of step 1 was not saved: .*step_00000001", result.err)
  end)

  it("refuses flags that make no sense", function()
    local function refused(flags, words)
      local result = support.run(("%s run %s x.lua"):format(quoted(support.program()), flags))
      assert.are.equal(2, result.code)
      assert.matches(words, result.err)
    end
    refused("--max-restarts -1", "expected an integer from 0 to 1000000, got '%-1'")
    refused("--nproc 2 --min-nproc 3", "expected an integer from 1 to 2, got '3'")
  end)
end)
