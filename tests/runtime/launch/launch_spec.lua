--- Whole jobs from outside: moonshard run --nproc N with scripts that work, fail, hang and are killed.
-- Times are limits that the program promises, not measures of speed.
local support = require "tests.support.support"

local program = support.program()
local quoted = support.shell_quoted(program)
local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function()
  -- Nothing may be left, whatever the case did; what is left would have the folder on its command line.
  -- A shell around a job ends a moment after it.
  support.wait_for(function() return #support.processes_with(folder) == 0 end, 3)
  local left = {}
  for _, id in ipairs(support.processes_with(folder)) do
    left[#left + 1] = (support.read("/proc/" .. id .. "/cmdline") or ""):gsub("%z", " ")
    os.execute("kill -9 " .. id .. " 2>/dev/null")
  end
  support.remove(folder)
  assert.are.same({}, left)
end)

local function script(text)
  support.write(folder .. "/script.lua", "local ms = require 'moonshard'\nlocal dist = ms.dist\n" .. text .. "\n")
  return support.shell_quoted(folder .. "/script.lua")
end

local function launch(words, text, options)
  options = options or {}
  options.folder = folder
  return support.run(("%s run %s --log-dir %s/logs %s"):format(quoted, words, folder, script(text)), options)
end

local function log(rank) return support.read(("%s/logs/log.rank%d.txt"):format(folder, rank)) end

local function now() return tonumber(support.first_line("date +%s.%N")) end

--- Starts a job in the background; its ranks write their process ids to FOLDER/pid.<rank> by `mark()`.
local marking = [[
local function mark()
  local file = assert(io.open(arg[0]:gsub("script.lua$", "pid." .. dist.rank()), "w"))
  file:write(assert(io.open("/proc/self/stat")):read("*l"):match("^(%d+)"), "\n")
  file:close()
end
]]

local function start(words, text, environment)
  os.execute(("cd %s && { %s %s run %s --log-dir logs %s >out 2>err </dev/null; echo $? >code; } &"):format(
    folder, environment or "", quoted, words, script(marking .. text)))
end

local function pid_of(rank)
  local text = support.read(folder .. "/pid." .. rank)
  return text and text:match("^(%d+)\n")
end

local function wait_for_ranks(world)
  assert.is_true(support.wait_for(function()
    for rank = 0, world - 1 do
      if not pid_of(rank) then return false end
    end
    return true
  end, 60), support.read(folder .. "/err"))
end

local function is_running(pid)
  local stat = support.read("/proc/" .. pid .. "/stat")
  return stat ~= nil and not stat:match("%) [ZX]")
end

--- Seconds until the job's exit code is there, and the code.
local function wait_for_end(since)
  assert.is_true(support.wait_for(function() return (support.read(folder .. "/code") or ""):match("\n") ~= nil end, 60))
  return now() - since, tonumber((support.read(folder .. "/code")))
end

local function signal_launcher(signal) support.signal_launchers(signal, program, folder .. "/script.lua", "--nproc") end

describe("run --nproc", function()
  it("runs ranks that know each other; the output of others goes to their logs", function()
    local result = launch("--nproc 3", [[
      io.stderr:write("hello from ", dist.rank(), "\n")
      print(dist.rank(), dist.world(), dist.local_rank(), dist.all_reduce(dist.rank() + 1), arg[1] or "none",
        dist.broadcast(dist.rank(), 2))
      dist.barrier()]])
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("0\t3\t0\t6\tnone\t2\n", result.out)
    assert.are.equal("hello from 1\n1\t3\t1\t6\tnone\t2\n", log(1))
    assert.are.equal("hello from 2\n2\t3\t2\t6\tnone\t2\n", log(2))
    assert.matches("logs of the other ranks: " .. folder .. "/logs", result.err, 1, true)
    assert.matches("hello from 0", result.err, 1, true)
  end)

  it("gives the script its own arguments, and 1 is no job", function()
    support.write(folder .. "/script.lua", "print(require('moonshard').dist.world(), ...)")
    local path = support.shell_quoted(folder .. "/script.lua")
    local result = support.run(("%s run --nproc=2 --log-dir %s/logs %s --nproc 7 x"):format(quoted, folder, path), { folder = folder })
    assert.are.equal("2\t--nproc\t7\tx\n", result.out, result.err)
    assert.are.equal("2\t--nproc\t7\tx\n", log(1))
    result = support.run(("%s run --nproc 1 %s"):format(quoted, path), { folder = folder })
    assert.are.equal("1\n", result.out)
    assert.are.equal("", result.err)
  end)

  it("leaves nothing in the temporary folder, unless a rank has failed", function()
    local temporary = folder .. "/tmp"
    os.execute("mkdir " .. support.shell_quoted(temporary))
    local function left_by(text)
      local result = support.run(("%s run --nproc 2 %s"):format(quoted, script(text)), { environment = { TMPDIR = temporary } })
      return support.first_line("ls " .. support.shell_quoted(temporary)), result
    end
    local left, result = left_by("print(dist.all_reduce(1)) ms.model('llama3-tiny')")
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("", left)
    left, result = left_by("dist.barrier() assert(dist.rank() == 0, 'no')")
    assert.matches("logs of the other ranks: " .. temporary .. "/" .. left, result.err, 1, true)
  end)

  it("refuses what is no number of ranks", function()
    for words, text in pairs {
      ["--nproc 0"] = "option '--nproc': expected an integer from 1 to 4096, got '0'",
      ["--nproc x"] = "option '--nproc': expected an integer from 1 to 4096, got 'x'",
      ["--nproc"] = "option '--nproc': expected an integer from 1 to 4096, got '--log-dir'",
      ["--ranks 2"] = "expected a script, or --nproc, --hosts, --remote-shell, --log-dir, --max-restarts or --min-nproc before it, " ..
        "got '--ranks'",
    } do
      local result = launch(words, "print 'not run'")
      assert.are.equal(2, result.code, words)
      assert.matches(text, result.err, 1, true)
      assert.are.equal("", result.out)
    end
  end)

  it("refuses variables that contradict each other", function()
    local result = launch("", "print 'not run'", { environment = { RANK = "1" } })
    assert.are.equal(2, result.code)
    assert.matches("expected RANK and WORLD_SIZE together, got no WORLD_SIZE", result.err, 1, true)
  end)

  it("refuses a number of ranks that another launcher did not start", function()
    local result = launch("--nproc 3", "print 'not run'",
      { environment = { RANK = "0", WORLD_SIZE = "2", MASTER_ADDR = "127.0.0.1", MASTER_PORT = "1" } })
    assert.are.equal(2, result.code)
    assert.matches("option 'nproc': expected 2, the ranks that torchrun started, got 3", result.err, 1, true)
  end)

  it("a rank that ran alone says whom it waited for", function()
    local result = launch("", "dist.barrier()",
      { environment = { RANK = "1", WORLD_SIZE = "2", MASTER_ADDR = "127.0.0.1", MASTER_PORT = "9", MOONSHARD_TIMEOUT = "1" } })
    assert.are.equal(1, result.code)
    assert.matches("rank 1 of 2: expected rank 0 to listen at /tmp/moonshard-", result.err, 1, true)
  end)
end)

describe("a rank that fails", function()
  it("is named with its error, its code is the job's, and the others say whom they miss", function()
    local result = launch("--nproc 3", [[
      dist.barrier()
      if dist.rank() == 1 then error("no such layer") end
      dist.all_reduce(1)]])
    assert.are.equal(1, result.code)
    assert.matches("rank 1 of 3 failed first: exit code 1, after collective 3 (barrier of 'script')", result.err, 1, true)
    assert.matches("script.lua:4: no such layer", result.err, 1, true)
    for _, text in ipairs { result.err, log(2) } do
      assert.matches("collective 4 (all_gather of 'all_reduce')", text, 1, true)
      assert.matches("rank 1 is missing: failed after collective 3 (barrier of 'script')", text, 1, true)
      assert.matches("no such layer", text, 1, true)
    end
  end)

  it("may be rank 0", function()
    local result = launch("--nproc 2", [[dist.barrier() if dist.rank() == 0 then error("mine") end dist.barrier()]])
    assert.are.equal(1, result.code)
    assert.matches("rank 0 of 2 failed first: exit code 1, after collective 3 (barrier of 'script')", result.err, 1, true)
    assert.matches("rank 0 is missing: failed after collective 3 (barrier of 'script')", log(1), 1, true)
  end)

  it("before it has met the others ends them, too", function()
    local began = now()
    local result = launch("--nproc 2", [[if dist.rank() == 0 then error("mine") end dist.barrier()]])
    assert.are.equal(1, result.code)
    assert.matches("rank 0 of 2 failed first: exit code 1", result.err, 1, true)
    assert.is_true(now() - began < 15)
  end)

  it("without any collective ends the others, too", function()
    local began = now()
    local result = launch("--nproc 2", [[if dist.rank() == 1 then error("mine") end while true do end]])
    assert.are.equal(1, result.code)
    assert.matches("rank 1 of 2 failed first", result.err, 1, true)
    assert.matches("rank 0 went on and was made to end", result.err, 1, true)
    assert.is_true(now() - began < 15)
  end)
end)

describe("a collective", function()
  it("that a rank skips by ending is reported with rank, operation and number", function()
    local result = launch("--nproc 2", [[
      dist.barrier()
      if dist.rank() == 0 then dist.all_reduce(1) end]])
    assert.are.equal(1, result.code)
    assert.matches("collective 4 (all_gather of 'all_reduce')", result.err, 1, true)
    assert.matches("rank 1 is missing: finished without taking part, after collective 3 (barrier of 'script')", result.err, 1, true)
  end)

  it("that a rank skips by going on elsewhere is reported after the timeout", function()
    local began = now()
    local result = launch("--nproc 2", [[
      dist.barrier()
      if dist.rank() == 0 then dist.all_reduce(1) else while true do end end]], { environment = { MOONSHARD_TIMEOUT = "1" } })
    assert.are.equal(1, result.code)
    assert.is_true(now() - began < 1 + 5 + 10)
    assert.matches("collective 4 (all_gather of 'all_reduce')", result.err, 1, true)
    assert.matches("rank 1 is missing: has not come: it is after collective 3 (barrier of 'script')", result.err, 1, true)
  end)
end)

describe("signals", function()
  local in_a_collective = [[
    dist.barrier()
    mark()
    if dist.rank() ~= 1 then dist.all_reduce(1) end
    while true do end]]

  it("a killed rank ends all within 10 s, and every rank's report names it", function()
    start("--nproc 3", in_a_collective)
    wait_for_ranks(3)
    os.execute("sleep 0.5")
    local killed = now()
    os.execute("kill -9 " .. pid_of(1))
    local seconds, code = wait_for_end(killed)
    assert.are.equal(137, code)
    assert.is_true(seconds < 10, seconds)
    local err = support.read(folder .. "/err")
    assert.matches("rank 1 of 3 failed first: signal 9 (Killed), after collective 3 (barrier of 'script')", err, 1, true)
    for _, text in ipairs { err, log(2) } do
      assert.matches("collective 4 (all_gather of 'all_reduce')", text, 1, true)
      assert.matches("rank 1 is missing", text, 1, true)
    end
    for rank = 0, 2 do assert.is_false(is_running(pid_of(rank))) end
  end)

  it("a stopped rank ends all within the timeout and 5 s, and is named", function()
    start("--nproc 3", [[
      dist.barrier()
      mark()
      while true do dist.all_reduce(1) end]], "MOONSHARD_TIMEOUT=2")
    wait_for_ranks(3)
    os.execute("sleep 0.3")
    local stopped = now()
    os.execute("kill -STOP " .. pid_of(1))
    local seconds, code = wait_for_end(stopped)
    assert.are.equal(1, code)
    assert.is_true(seconds < 2 + 5, seconds)
    local err = support.read(folder .. "/err")
    assert.matches(("rank 1 is missing: its process %s is stopped"):format(pid_of(1)), err, 1, true)
    assert.matches("collective %d+ %(all_%a+ of '", err)
    for rank = 0, 2 do assert.is_false(is_running(pid_of(rank))) end
  end)

  it("a launcher that is told to end ends all ranks", function()
    start("--nproc 2", "mark() while true do dist.barrier() end")
    wait_for_ranks(2)
    local told = now()
    signal_launcher("TERM")
    local seconds, code = wait_for_end(told)
    assert.are.equal(143, code)
    assert.is_true(seconds < 10, seconds)
    for rank = 0, 1 do assert.is_false(is_running(pid_of(rank))) end
  end)

  it("a killed launcher leaves no rank behind", function()
    start("--nproc 2", "mark() while true do end")
    wait_for_ranks(2)
    signal_launcher("KILL")
    for rank = 0, 1 do
      assert.is_true(support.wait_for(function() return not is_running(pid_of(rank)) end, 5))
    end
  end)
end)

describe("children of ranks", function()
  it("end when the launcher is killed", function()
    start("--nproc 2", ("os.execute('sleep 1000 & echo $! >%s/child.' .. dist.rank()) mark() while true do end"):format(folder))
    wait_for_ranks(2)
    local function child(rank) return support.read(("%s/child.%d"):format(folder, rank)):match("%d+") end
    for rank = 0, 1 do assert.is_true(is_running(child(rank))) end
    signal_launcher("KILL")
    for rank = 0, 1 do
      assert.is_true(support.wait_for(function() return not is_running(child(rank)) end, 5))
    end
  end)
end)

describe("a job that rank 0 hosts", function()
  -- Ranks by hand: nobody but rank 0 keeps what the others have posted.
  local process = tonumber(support.first_line("echo $PPID"))
  local function port() return 20000 + process % 10000 end
  local function start_by_hand(world, text)
    local path = script(marking .. text)
    for rank = 0, world - 1 do
      local variables = ("RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d"):format(rank, world, port())
      os.execute(("cd %s && { %s %s run %s >log.%d 2>&1; echo $? >code.%d; } &"):format(folder, variables, quoted, path, rank, rank))
    end
    wait_for_ranks(world)
  end

  it("is reported by every survivor when rank 0 is killed, and nobody else is blamed", function()
    for _, text in ipairs { "while true do dist.all_reduce(1) end", "if dist.rank() > 0 then dist.barrier() end while true do end" } do
      start_by_hand(3, "dist.barrier() mark() " .. text)
      os.execute("sleep 0.7")
      os.execute("kill -9 " .. pid_of(0))
      for rank = 1, 2 do
        assert.is_true(support.wait_for(function() return support.read(("%s/code.%d"):format(folder, rank)) ~= nil end, 15))
        local said = support.read(("%s/log.%d"):format(folder, rank))
        assert.are.equal("1\n", support.read(("%s/code.%d"):format(folder, rank)), said)
        assert.matches("rank 0 is missing: its process is gone; last seen", said, 1, true)
        assert.is_nil(said:match("rank [12] is missing"), said)
        assert.is_nil(said:match("has not joined"), said)
      end
      os.execute(("cd %s && rm -f pid.* code.* log.*"):format(folder))
    end
  end)

  it("meets at a socket of this user alone, at no port, and its name does not tell the token", function()
    start_by_hand(2, "mark() dist.barrier() while true do end")
    local first = support.first_line
    local place = first("ls -t /tmp/moonshard-$(id -u)/*.store | grep /" .. port() .. "-")
    assert.matches("^srwx", first("ls -l " .. place))
    assert.matches("^drwx%-%-%-%-%-%-", first("ls -ld /tmp/moonshard-$(id -u)"))
    assert.are.equal("", first(("grep -i ':%04X ' /proc/net/tcp /proc/net/tcp6"):format(port())))
    os.execute(("kill -9 %s %s"):format(pid_of(0), pid_of(1)))
  end)
end)

describe("other launchers", function()
  local who = [[print(("%d/%d %g"):format(dist.rank(), dist.world(), dist.all_reduce(dist.rank() + 1)))]]

  it("variables set by hand make a job, which rank 0 hosts", function()
    local port = 20000 + tonumber(support.first_line("echo $$")) % 10000
    local environment = ("WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d"):format(port)
    local path = script(who)
    local result = support.run(("RANK=1 %s %s run %s >second 2>&1 & RANK=0 %s %s run %s; wait; cat second"):format(
      environment, quoted, path, environment, quoted, path), { folder = folder })
    assert.are.equal("0/2 3\n1/2 3\n", result.out, result.err)
  end)

  it("mpirun's ranks find each other", function()
    if support.first_line("command -v mpirun") == "" then pending("mpirun is not installed (Debian: openmpi-bin)") return end
    local result = support.run(("mpirun --allow-run-as-root --oversubscribe -n 2 %s run %s"):format(quoted, script(who)),
      { folder = folder })
    assert.are.equal(0, result.code, result.err)
    assert.matches("0/2 3", result.out, 1, true)
    assert.matches("1/2 3", result.out, 1, true)
  end)

  it("a killed mpirun leaves no rank behind", function()
    if support.first_line("command -v mpirun") == "" then pending("mpirun is not installed (Debian: openmpi-bin)") return end
    os.execute(("cd %s && { mpirun --allow-run-as-root --oversubscribe -n 2 %s run %s >out 2>err </dev/null & echo $! >launcher; }"):format(
      folder, quoted, script(marking .. "mark() while true do end")))
    wait_for_ranks(2)
    os.execute("kill -9 " .. support.read(folder .. "/launcher"))
    for rank = 0, 1 do
      assert.is_true(support.wait_for(function() return not is_running(pid_of(rank)) end, 10))
    end
  end)

  it("torchrun's ranks find each other at its store", function()
    local torchrun = support.root() .. "/.deps/venv/bin/torchrun"
    if not support.exists(torchrun) then pending("torchrun is not installed") return end
    local result = support.run(("%s --standalone --nproc_per_node=2 --no-python %s run %s"):format(support.shell_quoted(torchrun), quoted,
      script(who)), { folder = folder, seconds = 120 })
    assert.are.equal(0, result.code, result.err)
    assert.matches("0/2 3", result.out, 1, true)
    assert.matches("1/2 3", result.out, 1, true)
  end)
end)

describe("experiments", function()
  local tiny = "--model linear-tiny --device cpu --hidden-dim 16 --num-layers 1 --batch-size 4 --iters 1 --warmup 0"

  it("profile --nproc prints one record, of the whole job", function()
    local result = support.run(("%s profile --json --parallel ddp --nproc 2 --log-dir %s/logs %s"):format(quoted, folder, tiny),
      { folder = folder })
    assert.are.equal(0, result.code, result.err)
    local record = support.parse_json(result.out)
    assert.are.equal("ok", record.status)
    assert.are.equal(2, record.options.nproc)
    assert.are.equal(2, record.sharding.world)
  end)

  it("a mistake in profile's words is found before any rank starts", function()
    local result = support.run(("%s profile --nproc 2 --log-dir %s/logs --batch-szie 4"):format(quoted, folder), { folder = folder })
    assert.are.equal(2, result.code)
    assert.matches("unknown option 'batch-szie'", result.err, 1, true)
    assert.is_false(support.exists(folder .. "/logs"))
  end)

  it("points of a sweep with nproc run as ranks, with logs in the point's folder", function()
    local result = support.run(("%s run %s"):format(quoted, script([[
      local runs = ms.sweep { model = "linear-tiny", device = "cpu", hidden_dim = 16, num_layers = 1, batch_size = 4, iters = 1, warmup = 0,
        parallel = "ddp", nproc = 2, grid = { mode = { "none" } } }:run()
      print(runs.points[1].status, runs.points[1].result.sharding.world)]])), { folder = folder })
    assert.are.equal(0, result.code, result.err)
    assert.matches("ok\t2\n", result.out, 1, true)
    local point = support.first_line("ls -d " .. folder .. "/results/*/points/*")
    assert.matches("step 1:", support.read(point .. "/log.rank0.txt"), 1, true)
    assert.matches("step 1:", support.read(point .. "/log.rank1.txt"), 1, true)
  end)

  it("a rank that runs out of memory makes the whole point oom", function()
    local result = support.run(("%s run %s"):format(quoted, script([[
      local runs = ms.sweep { model = "linear-tiny", device = "cpu", batch_size = 512, iters = 1, warmup = 0, memory_limit_mb = 1,
        parallel = "ddp", nproc = 2, grid = { mode = { "none" } } }:run()
      print(runs.points[1].status)]])), { folder = folder })
    assert.matches("oom\n", result.out, 1, true)
  end)
end)
