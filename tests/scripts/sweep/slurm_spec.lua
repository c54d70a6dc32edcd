--- --launcher slurm against a real Slurm of one node, started here. Skipped with the reason where it cannot start.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local cluster, reason, place, environment

setup(function()
  cluster = support.temporary_folder()
  local result = support.run(("%s/tests/scripts/sweep/slurm_cluster start %s"):format(support.root(), cluster), { seconds = 60 })
  if result.code ~= 0 then
    reason = result.out:match("[^\n]*")
    io.stderr:write("slurm_spec: ", reason, "\n")
  end
end)
teardown(function()
  support.run(("%s/tests/scripts/sweep/slurm_cluster stop %s"):format(support.root(), cluster))
  support.remove(cluster)
end)
before_each(function()
  place = support.place()
  environment = { SLURM_CONF = cluster .. "/slurm.conf" }
end)
after_each(function() place:remove() end)

--- A case that needs the cluster.
local function slurm_it(claim, case)
  it(claim, function()
    if reason then return pending(reason) end
    case()
  end)
end

local function squeue() return support.run("squeue --noheader --array", { environment = environment }).out end

--- What a case that waited in vain has to say: the queue, what the tasks printed, and the daemons' last words.
local function aftermath(result)
  return table.concat({ result.out, result.err, support.run("squeue --format='%i %T %r'; sinfo --long", { environment = environment }).out,
    support.run(("tail -n 20 %s/results/*/slurm/task_* %s/results/*/points/*/log.rank* %s/slurm*.log"):format(
      place.path, place.path, cluster)).out }, "\n")
end

--- The script with `iters` as an axis.
local function script(grid)
  place:script(([[ms.sweep { out = "OUT", name = "array", %s, grid = { %s } }:run()]]):format((support.tiny:gsub("iters = 1, ", "")), grid))
end

describe("--launcher slurm", function()
  slurm_it("submits the points as one job array and collects them", function()
    script("mode = { 'no_dp', 'ghost' }, seq_length = { 8, 16 }")
    local result = place:run("sweep sweep.lua --launcher slurm --slurm-args '--comment=mine --nice=5'", { environment = environment })
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("submitted 4 points as Slurm job array %d+", result.out)
    assert.matches("[4/4] ", result.out, 1, true)
    local path = place:run_path()
    local runs = ms.load(path)
    assert.are.equal(4, runs:count("ok"))
    assert.is_true(support.exists(path .. "/no_dp_seq8_result.json"))
    assert.matches("step 1: loss", support.read(("%s/points/%s/log.rank0.txt"):format(path, runs.points[1].id)))
    assert.matches("srun", support.read(path .. "/slurm/job_1.sh"))
    -- Nothing is left to do, so nothing is submitted.
    result = place:run("sweep sweep.lua --launcher slurm --resume " .. path, { environment = environment })
    assert.are.equal(0, result.code, result.err)
    assert.is_nil(result.out:find("submitted", 1, true))
  end)

  slurm_it("points of several ranks are tasks of srun", function()
    place:script([[ms.sweep { out = "OUT", TINY, parallel = "ddp", nproc = 2, grid = { seq_length = { 8 } } }:run()]])
    local result = place:run("sweep sweep.lua --launcher slurm", { environment = environment })
    assert.are.equal(0, result.code, aftermath(result))
    local point = ms.load(place:run_path()).points[1]
    assert.are.equal("ok", point.status)
    assert.are.equal(2, point.result.sharding.world)
    assert.is_true(support.exists(("%s/points/%s/log.rank1.txt"):format(place:run_path(), point.id)))
  end)

  slurm_it("points may be functions of the script", function()
    place:script([[
      ms.sweep { out = "OUT/own", grid = { seq_length = { 8, 16 } },
        run = function(point) return { twice = 2 * point.seq_length, task = tonumber(os.getenv "SLURM_ARRAY_TASK_ID") } end }:run()]])
    local result = place:run("sweep sweep.lua --launcher slurm", { environment = environment })
    assert.are.equal(0, result.code, result.out .. result.err)
    for i, point in ipairs(ms.load(support.first_line(("ls -d %s/results/own/*"):format(place.path))).points) do
      assert.are.equal("ok", point.status, point.error)
      assert.are.equal(8 * i * 2, point.metrics.twice)
      assert.are.equal(i, point.metrics.task)
    end
  end)

  slurm_it("a point that has saved and asks to be started again is put into the queue again", function()
    -- Slurm starts it again two minutes later: the test need not wait for that.
    place:script([[ms.sweep { out = "OUT", grid = { seq_length = { 8 } }, run = function() os.exit(75) end }:run()]])
    local parent = place:start("sweep sweep.lua --launcher slurm", environment)
    finally(function()
      support.run("scancel --me", { environment = environment })
      support.kill(parent)
    end)
    assert.is_true(support.wait_for(function()
      return support.run("squeue --noheader --array --format='%T %r %K'", { environment = environment }).out:find("PENDING BeginTime 1")
    end, 30), squeue() .. support.read(place.path .. "/out"))
    local point = ms.load(place:run_path()).points[1]
    assert.are.equal("running", point.status)
  end)

  slurm_it("a task that ends without a record, and one that takes too long, are recorded as such", function()
    local prefix = place.path .. "/prefix"
    os.execute(("mkdir -p %s/bin && ln -s %s %s/share"):format(prefix, (place.program:gsub("/bin/moonshard$", "/share")), prefix))
    support.write(prefix .. "/bin/moonshard", ([[#!/bin/sh
case $(sed -n "1p" "$2/slurm/points_1.txt") in $3) [ -f "%s/well" ] || { echo "falling over"; exit 9; };; esac
exec %s "$@"
]]):format(place.path, place.program))
    os.execute("chmod +x " .. prefix .. "/bin/moonshard")
    environment.MOONSHARD_PREFIX = prefix
    script("iters = { 1, 100000000 }")
    local result = place:run("sweep sweep.lua --launcher slurm --timeout 3", { environment = environment })
    assert.are.equal(5, result.code, result.out .. result.err)
    local runs = ms.load(place:run_path())
    assert.are.equal("failed", runs.points[1].status)
    assert.matches("the process ended with exit code 9; last words: .*falling over", runs.points[1].error)
    assert.are.equal("timeout", runs.points[2].status, runs.points[2].error)

    -- The script's function after a point makes the second attempt go well.
    place:script(([[ms.sweep { out = "OUT/again", TINY, grid = { seq_length = { 8, 16 } },
      each = function() io.open("%s/well", "w"):close() end }:run()]]):format(place.path))
    result = place:run("sweep sweep.lua --launcher slurm --retry 1", { environment = environment })
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("1 points failed; retry 1 of 1", result.out, 1, true)
    assert.matches("done after [%d:]+: 2 ok", result.out)
  end)

  slurm_it("a parent that is killed finds its array again: nothing is submitted twice", function()
    script("iters = { 1, 10000 }")
    local parent = place:start("sweep sweep.lua --launcher slurm", environment)
    assert.is_true(support.wait_for(function()
      local ok, runs = pcall(ms.load, place:run_path() or "none")
      return ok and runs.points[1].status == "ok" and squeue():find("%S")
    end, 30), support.read(place.path .. "/out") .. support.read(place.path .. "/err"))
    support.kill(parent)
    assert.is_true(support.wait_end(parent, 5))
    local path = place:run_path()
    local result = place:run("sweep sweep.lua --launcher slurm --resume " .. path, { environment = environment, seconds = 120 })
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("Slurm job array %d+ still has 1 of these points; waiting for them", result.out)
    assert.is_nil(result.out:find("submitted", 1, true), result.out)
    assert.are.equal(2, ms.load(path):count("ok"))
  end)

  slurm_it("Ctrl-C twice takes all points back", function()
    script("iters = { 100000000, 100000001 }")
    local parent = place:start("sweep sweep.lua --launcher slurm", environment)
    finally(function() support.kill(parent) end)
    assert.is_true(support.wait_for(function() return (squeue():find(" R ", 1, true)) end, 30))
    support.kill(parent, "INT")
    os.execute("sleep 0.3")
    support.kill(parent, "INT")
    assert.is_true(support.wait_end(parent, 30), support.read(place.path .. "/out"))
    assert.is_true(support.wait_for(function() return not squeue():find("%S") end, 10), squeue())
    for _, point in ipairs(ms.load(place:run_path()).points) do assert.are.equal("interrupted", point.status, point.error) end
  end)

  slurm_it("says why a job does not begin", function()
    -- More tasks than the only node has processors.
    place:script([[ms.sweep { out = "OUT", TINY, parallel = "ddp", nproc = 64, grid = { seq_length = { 8 } } }:run()]])
    local parent = place:start("sweep sweep.lua --launcher slurm", environment)
    finally(function()
      support.kill(parent)
      support.run("scancel --me", { environment = environment })
    end)
    assert.is_true(support.wait_for(function()
      return (support.read(place.path .. "/out") or ""):find("Slurm does not begin with job %d+: %u%a+; see scontrol show job")
    end, 30), squeue() .. support.read(place.path .. "/out") .. support.read(place.path .. "/err"))
  end)

  slurm_it("a job that Slurm does not take ends the sweep with its words", function()
    script("iters = { 1 }")
    local result = place:run("sweep sweep.lua --launcher slurm --slurm-args --partition=none", { environment = environment })
    assert.are.equal(1, result.code)
    assert.matches("sbatch did not take the job .*invalid partition", result.err)
  end)
end)

describe("without Slurm", function()
  -- No cluster: an sbatch that takes nothing leaves the script that it was given.
  it("quotes a folder with blanks for sbatch and for the shell", function()
    local programs, out = place.path .. "/bin", place.path .. "/a b's \"%A\""
    os.execute("mkdir " .. support.shell_quoted(programs))
    for _, name in ipairs { "sbatch", "srun", "squeue", "scancel" } do
      support.write(programs .. "/" .. name, '#!/bin/sh\nprintf "%s\\n" "$@" >>"$0.words"\n[ "${0##*/}" = srun ]\n')
    end
    os.execute("chmod +x " .. support.shell_quoted(programs) .. "/*")
    support.write(place.path .. "/sweep.lua", ([[local ms = require "moonshard"
      ms.sweep { out = %q, name = "array", %s, grid = { mode = { "no_dp" } } }:run()]]):format(out, support.tiny))
    local changed = { PATH = programs .. ":" .. os.getenv("PATH") }
    place:run("sweep sweep.lua --launcher slurm", { environment = changed })
    local job = support.first_line("ls " .. support.shell_quoted(out) .. "/*/slurm/job_1.sh")
    local text = support.read(job)
    local folder = job:match("^(.*)/job_1.sh$")
    local escaped = folder:gsub('"', '\\"'):gsub("%%", "%%%%")
    assert.matches('#SBATCH --output="' .. escaped .. '/task_%A_%a.txt"\n', text, 1, true)
    -- The script itself, as a task would run it.
    changed.SLURM_ARRAY_TASK_ID = "1"
    local result = support.run("bash " .. support.shell_quoted(job), { environment = changed })
    assert.are.equal("", result.err)
    local words = support.read(programs .. "/srun.words")
    assert.matches(("\npoint\n%s\n"):format(folder:match("^(.*)/slurm$")), words, 1, true)
    assert.matches("\n--output=" .. folder:match("^(.*)/slurm$"):gsub("%%", "%%%%") .. "/points/", words, 1, true)
  end)

  it("the launcher says what is missing", function()
    script("iters = { 1 }")
    local result = place:run("sweep sweep.lua --launcher slurm", { environment = { PATH = place.path .. "/missing" } })
    assert.are.equal(1, result.code)
    assert.matches("launcher = slurm: expected the program sbatch, got none; install Slurm or use launcher = local", result.err, 1, true)
  end)
end)
