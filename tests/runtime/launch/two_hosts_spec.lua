--- Jobs across two hosts (tests/support/two_hosts.lua), by hand and by a list of hosts: good, slow, lossy and cut networks, and every
-- kill. Times are limits that the program promises.
local support = require "tests.support.support"
local two_hosts = require "tests.support.two_hosts"

local absence = two_hosts.absence()
if absence then
  describe("two hosts", function() it("are needed", function() pending("no two hosts here: " .. absence) end) end)
  return
end

local program = support.shell_quoted(support.program())
local hosts, folder

setup(function() hosts = two_hosts.make() end)
teardown(function() hosts:close() end)
before_each(function()
  folder = support.temporary_folder()
  hosts:wire(0, 0)
end)
after_each(function()
  -- Nothing may be left on either host, whatever the case did.
  local function left()
    local found = hosts:processes("b", support.program())
    for _, id in ipairs(support.processes_with(folder .. "/script.lua")) do found[#found + 1] = tostring(id) end
    return found
  end
  support.wait_for(function() return #left() == 0 end, 10)
  assert.are.same({}, left())
  support.remove(folder)
end)

local marking = [[
local ms = require "moonshard"
local dist = ms.dist
local function mark()
  local file = assert(io.open(arg[0]:gsub("script.lua$", "pid." .. dist.rank()), "w"))
  file:write(assert(io.open("/proc/self/stat")):read("*l"):match("^(%d+)"), "\n")
  file:close()
end
]]

local function script(text) support.write(folder .. "/script.lua", marking .. text .. "\n") end

local function read(name) return support.read(folder .. "/" .. name) end
local function log(rank) return read(("logs/log.rank%d.txt"):format(rank)) end
local function now() return tonumber(support.first_line("date +%s.%N")) end
local function wait_for_files(names, seconds)
  for _, name in ipairs(names) do
    assert.is_true(support.wait_for(function() return (read(name) or ""):find("\n") ~= nil end, seconds or 30), name .. (read "err" or ""))
  end
end

--- Starts `moonshard run --hosts` on hosta.
local function start(list, text, flags, variables)
  script(text)
  local line = "cd %s && { %s %s run --hosts %s --remote-shell %s --log-dir logs %s %s/script.lua >out 2>err; echo $? >code; }"
  os.execute(hosts:on("a", line:format(folder, variables or "", program, list, hosts.shell, flags or "", folder)) .. " &")
end

--- The job's exit code and seconds until it came.
local function wait_for_end(since)
  wait_for_files({ "code" }, 60)
  return tonumber((read "code")), now() - (since or now())
end

--- Starts four ranks by hand, two on each host. They meet at the name of the first, which is its loopback address to itself.
local function start_by_hand(text, variables)
  script(text)
  for rank = 0, 3 do
    os.execute(hosts:on(rank < 2 and "a" or "b", ([[cd %s && { %s RANK=%d WORLD_SIZE=4 LOCAL_RANK=%d MASTER_ADDR=hosta MASTER_PORT=29500 \
      %s run %s/script.lua >log.%d 2>&1; echo $? >code.%d; }]]):format(folder, variables or "", rank, rank % 2, program, folder, rank,
      rank)) .. " &")
  end
end

local function kill(rank) hosts:run(rank < 2 and "a" or "b", "kill -9 " .. read("pid." .. rank)) end
local ranks = { "pid.0", "pid.1", "pid.2", "pid.3" }
local working = "dist.barrier() mark() while true do dist.all_reduce(1) end"

local function kill_launcher() support.signal_launchers("KILL", support.program(), "--hosts", folder) end

describe("ranks by hand on two hosts", function()
  it("meet over a slow network that loses packets, at the addresses that reach each other", function()
    hosts:wire(25, 0.02)
    start_by_hand("print(dist.all_reduce(dist.rank() + 1))")
    wait_for_files { "code.0", "code.1", "code.2", "code.3" }
    for rank = 0, 3 do
      local said = read("log." .. rank)
      assert.are.equal("0\n", read("code." .. rank), said)
      assert.matches("\n10\n$", said)
      assert.matches(("rank %d of 4 on host%s: address %s (zz0), rendezvous at hosta:29500"):format(rank, rank < 2 and "a" or "b",
        two_hosts.address[rank < 2 and "a" or "b"]), said, 1, true)
    end
  end)

  it("name the one that was killed, rank 0 among them", function()
    for victim, words in pairs { [0] = "rank 0 is missing: ", [3] = "rank 3 is missing: ended: its " } do
      start_by_hand("dist.barrier() mark() if dist.rank() == " .. victim .. " then while true do end end dist.barrier()")
      wait_for_files(ranks)
      local since = now()
      kill(victim)
      for rank = 0, 3 do
        if rank ~= victim then
          wait_for_files { "code." .. rank }
          assert.is_true(now() - since < 10)
          local said = read("log." .. rank)
          assert.are.equal("1\n", read("code." .. rank), said)
          -- Neighbours of the victim see for themselves.
          if math.floor(rank / 2) ~= math.floor(victim / 2) then assert.matches(words, said, 1, true) end
          assert.matches(("rank %d is missing"):format(victim), said, 1, true)
        end
      end
      os.execute(("cd %s && rm -f pid.* code.* log.*"):format(folder))
    end
  end)

  it("end on both sides of a network that is cut for good, within their time", function()
    start_by_hand(working, "MOONSHARD_TIMEOUT=6")
    wait_for_files(ranks)
    hosts:wire(0, 1)
    local since = now()
    wait_for_files { "code.0", "code.1", "code.2", "code.3" }
    assert.is_true(now() - since < 6 + 10)
    for rank = 0, 3 do
      local said = read("log." .. rank)
      assert.are.equal("1\n", read("code." .. rank), said)
      -- Rank 0 hosts the board: beyond the cut it is the one that is missed.
      if rank < 2 then assert.matches("rank 2 is missing: no sign of life for", said, 1, true) end
      if rank >= 2 then assert.matches("the job's board", said, 1, true) end
    end
  end)
end)

describe("run --hosts", function()
  it("starts ranks there as here, with variables, folder and logs, and the token on no command line", function()
    start("hosta:1,hostb", [[
      print(dist.rank(), dist.world(), dist.local_rank(), os.getenv "MOONSHARD_TEST", os.getenv "PRIVATE", dist.all_reduce(1))
      io.open("here." .. dist.rank(), "w"):close()
      mark()
      while not io.open("go") do end]], "--nproc 2", "MOONSHARD_TEST=travels PRIVATE=stays")
    wait_for_files { "pid.0", "pid.1", "pid.2" }
    local environment = hosts:run("b", "tr '\\0' '\\n' </proc/" .. read("pid.1"):match("%d+") .. "/environ").out
    local token = environment:match("MOONSHARD_JOB_TOKEN=(%x+)")
    assert.are.equal(32, #token)
    assert.are.same({}, hosts:processes("b", token))
    assert.are.same({}, hosts:processes("a", token))
    support.write(folder .. "/go", "")
    assert.are.equal(0, (wait_for_end()), read "err")
    assert.are.equal("0\t3\t0\ttravels\tstays\t3\n", read "out")
    assert.matches("1\t3\t0\ttravels\tnil\t3\n", log(1), 1, true)
    assert.matches("2\t3\t1\ttravels\tnil\t3\n", log(2), 1, true)
    assert.matches("hosts: hosta (1 rank, this machine), hostb (2 ranks); rendezvous at 10.77.0.1:", read "err", 1, true)
    assert.matches("rank 2 of 3 on hostb: address 10.77.0.2 (zz0), rendezvous at 10.77.0.1:", log(2), 1, true)
    for rank = 0, 2 do assert.is_true(support.exists(folder .. "/here." .. rank)) end
  end)

  it("brings output and code of a first rank that is elsewhere", function()
    start("hostb:1,hosta:1", [[
      io.stderr:write("aside\n")
      print("main " .. dist.all_reduce(1))
      dist.barrier()
      os.exit(7 * (1 - dist.rank()))]])
    assert.are.equal(7, (wait_for_end()), read "err")
    assert.are.equal("main 2\n", read "out")
    assert.matches("aside\n", read "err", 1, true)
    assert.matches("rank 0 of 2 failed first: exit code 7 on hostb", read "err", 1, true)
  end)

  it("says why a host cannot be had", function()
    start("hosta:1,10.77.0.9:1", "dist.barrier()")
    assert.are.equal(1, (wait_for_end()), read "err")
    assert.matches("rank 1 of 2 failed first: its host 10.77.0.9 was lost: this program did not start there", read "err", 1, true)
    assert.matches("unknown host 10.77.0.9", read "logs/log.host.10.77.0.9.txt", 1, true)
  end)

  it("refuses lists that are none", function()
    for list, words in pairs { ["a:0"] = "expected HOST:RANKS", ["-oProxyCommand=x"] = "expected HOST:RANKS", ["a,a"] = "got 'a' twice",
      ["localhost,127.0.0.1"] = "another name of this machine" } do
      local result = support.run(("%s run --hosts=%s x.lua"):format(program, list))
      assert.are.equal(2, result.code, result.err)
      assert.matches(words, result.err, 1, true)
    end
  end)

  it("ends all within 10 s when a rank is killed on either host, and names it", function()
    for _, victim in ipairs { 0, 3 } do
      start("hosta:2,hostb:2", working)
      wait_for_files(ranks)
      hosts:wire(25, 0.02)
      local since = now()
      kill(victim)
      local code, seconds = wait_for_end(since)
      assert.are.equal(137, code, read "err")
      assert.is_true(seconds < 10, seconds)
      local words = ("rank %d of 4 failed first: signal 9 (Killed)%s"):format(victim, victim == 3 and " on hostb" or "")
      assert.matches(words, read "err", 1, true)
      for _, rank in ipairs { 1, 2 } do assert.matches(("rank %d is missing"):format(victim), log(rank), 1, true) end
      os.execute(("cd %s && rm -rf pid.* code logs"):format(folder))
      hosts:wire(0, 0)
    end
  end)

  it("leaves nothing anywhere when the launcher is killed", function()
    start("hosta:1,hostb:2", "os.execute('sleep 1000 &') mark() while true do end")
    wait_for_files { "pid.0", "pid.1", "pid.2" }
    assert.is_true(#hosts:processes("b", "sleep 1000") > 2)
    kill_launcher()
    assert.is_true(support.wait_for(function()
      return #hosts:processes("b", support.program()) == 0 and #hosts:processes("b", "sleep 1000") == 1
    end, 5))
  end)

  it("survives a network that is cut for a while", function()
    start("hosta:1,hostb:1", "mark() while dist.all_reduce(io.open('go') and 1 or 0) == 0 do end print(dist.all_reduce(1))")
    wait_for_files { "pid.0", "pid.1" }
    hosts:wire(0, 1)
    os.execute("sleep 2")
    hosts:wire(0, 0)
    os.execute("sleep 0.1")
    support.write(folder .. "/go", "")
    assert.are.equal(0, (wait_for_end()), read "err")
    assert.are.equal("2\n", read "out")
  end)

  it("ends on both sides of a network that is cut for good, and says which host is lost", function()
    start("hosta:2,hostb:2", working, "", "MOONSHARD_TIMEOUT=5")
    wait_for_files(ranks)
    hosts:wire(0, 1)
    local code, seconds = wait_for_end(now())
    assert.are.equal(1, code, read "err")
    assert.is_true(seconds < 5 + 10, seconds)
    assert.matches("its host hostb was lost: nothing heard of it for 5 s", read "err", 1, true)
    assert.is_true(support.wait_for(function() return #hosts:processes("b", support.program()) == 0 end, 10))
  end)

  it("starts again across hosts, from the checkpoint, to the same weights", function()
    local child = support.root() .. "/tests/runtime/checkpoint/durable_child.lua"
    local function run(name, flags, every)
      os.execute(("mkdir %s/%s"):format(folder, name))
      os.execute(hosts:on("a", ([[cd %s && { OMP_NUM_THREADS=1 %s run --hosts hosta:1,hostb:1 --remote-shell %s %s \
        %s %s/%s 8 %d >%s/err 2>&1; echo $? >%s/code; }]]):format(folder, program, hosts.shell, flags, child, folder, name, every, name,
        name)) .. " &")
    end
    local function step() return tonumber(read "broken/step" or "") or 0 end
    run("broken", "--max-restarts 1", 3)
    assert.is_true(support.wait_for(function() return step() >= 5 end, 60), read "broken/err")
    hosts:run("b", "kill -9 " .. read "broken/pid.1")
    run("straight", "", 1000)
    wait_for_files({ "broken/code", "straight/code" }, 60)
    assert.are.equal("0\n", read "broken/code", read "broken/err")
    assert.matches("restart 1 of 1, 2 ranks", read "broken/err", 1, true)
    assert.are.equal("0\n", read "straight/code", read "straight/err")
    assert.are.equal(read "straight/result", read "broken/result")
    assert.are.same({}, support.different_tensors(folder .. "/broken/end/step_00000008", folder .. "/straight/end/step_00000008"))
  end)
end)
