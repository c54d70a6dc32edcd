--- kill -9 of the parent, of a point's process and of a rank at random moments, then --resume: nothing lost, nothing run
-- twice. MOONSHARD_SWEEP_KILLS sets the number of kills per victim (4).
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local num_kills = tonumber(os.getenv("MOONSHARD_SWEEP_KILLS") or "4")
math.randomseed(os.time())
local place
before_each(function() place = support.place() end)
after_each(function() place:remove() end)

local function sleep(seconds) os.execute(("sleep %.3f"):format(seconds)) end

--- Good results of a run folder: text by point.
local function good_results()
  local good = {}
  for id, text in pairs(place:results()) do
    local record = support.parse_json(text)  -- raises when torn
    if record.status == "ok" then good[id] = text end
  end
  return good
end

--- Starts the sweep, or goes on with it, and waits for the moment that a result can be killed in.
local function start_again()
  local path = place:run_path()
  return place:start("sweep sweep.lua" .. (path and " --resume " .. path or ""))
end

--- Kills `victim(parent)` again and again; checks after each kill and at the end.
local function torment(num_points, victim, longest_wait)
  local good, kills, hits = {}, 0, 0
  for _ = 1, num_kills do
    local parent = start_again()
    assert.is_true(support.wait_for(function() return #place:children(parent) > 0 or not support.is_alive(parent) end, 30))
    sleep(math.random() * longest_wait)
    -- A slow machine has no victim yet at that moment: its first one then.
    local pid
    support.wait_for(function()
      pid = victim(parent)
      return pid ~= nil or not support.is_alive(parent)
    end, 30)
    if pid then
      support.kill(pid)
      kills = kills + 1
    end
    if pid ~= parent then
      -- The sweep itself must go on after the loss of a point; what it has made so far is looked at, then it is stopped.
      sleep(0.2)
      hits = hits + (support.is_alive(parent) and 1 or 0)
      support.kill(parent)
    end
    assert.is_true(support.wait_end(parent, 10))
    assert.is_true(support.wait_for(function() return #place:children(parent) == 0 end, 3), "a process survived its parent")
    local now = good_results()
    for id, text in pairs(good) do assert.are.equal(text, now[id], "a good result was lost or made again") end
    good = now
  end
  assert.is_true(kills > 0)
  local path = place:run_path()
  local result = place:run("sweep sweep.lua --resume " .. path, { seconds = 120 })
  assert.are.equal(0, result.code, result.out .. result.err)
  local final, count = good_results(), 0
  for id, text in pairs(good) do assert.are.equal(text, final[id], "a good result was made again") end
  for _ in pairs(final) do count = count + 1 end
  assert.are.equal(num_points, count)
  local runs = ms.load(path)
  assert.are.equal(num_points, runs:count("ok"))
  assert.are.same({}, runs.problems)
  -- What the parent makes of the results is complete, too.
  local seeds = 0
  for _, name in ipairs(support.list(path)) do
    assert.is_nil(name:find("moonshard-tmp", 1, true), name)
    if name:match("_result%.json$") then seeds = seeds + 1 end
  end
  assert.are.equal(num_points, seeds)
  local _, lines = support.read(path .. "/index.csv"):gsub("\n", "")
  assert.are.equal(num_points + 1, lines)
  for _, point in ipairs(runs.points) do assert.are.equal("ok", place:status(point.id)) end
  return hits
end

describe("kill -9", function()
  local text = [[ms.sweep { out = "OUT", TINY, grid = { seq_length = { 1, 2, 3, 4, 5, 6, 7, 8 } } }:run()]]

  it("of the parent at random moments loses nothing and runs nothing twice", function()
    place:script(text)
    torment(8, function(parent) return parent end, 1.2)
  end)

  it("of a point's process is a failed point that resuming redoes", function()
    place:script(text)
    local hits = torment(8, function(parent) return place:children(parent)[1] end, 0.8)
    assert.is_true(hits > 0, "the parent died with its point")
  end)

  it("of a rank ends its job, and resuming redoes that point", function()
    place:script((text:gsub("TINY", 'parallel = "ddp", nproc = 2, TINY'):gsub("5, 6, 7, 8", "5")))
    torment(5, function(parent)
      -- The launcher of a point is the parent's child; the ranks are the launcher's.
      local ranks = {}
      for _, id in ipairs(place:children(parent)) do
        local stat = support.read(("/proc/%d/stat"):format(id)) or ""
        local its_parent = tonumber(stat:match("%) %a (%d+)"))
        if its_parent and its_parent ~= parent then ranks[#ranks + 1] = id end
      end
      return ranks[math.random(math.max(#ranks, 1))]
    end, 1.5)
  end)
end)
