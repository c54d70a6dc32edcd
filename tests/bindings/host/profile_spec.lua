--- Profiling from the outside: environment switches, SIGUSR2, traces and tables of a point.
local support = require "tests.support.support"

local program = support.shell_quoted(support.program())

local read = support.read

local function output_of(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo \"code $?\"", "r"))
  local text = pipe:read("*a")
  pipe:close()
  return text, tonumber(text:match("code (%d+)%s*$"))
end

local tiny = " profile --model llama3-tiny --mode ghost --seq-length 32 --iters 2 --warmup 1 --device cpu"

describe("profiling from the outside", function()
  local folder
  before_each(function()
    folder = support.temporary_folder()
  end)
  after_each(function() support.remove(folder) end)

  it("MOONSHARD_PROFILE and the older switches write the phases of every step", function()
    for _, switch in ipairs { "MOONSHARD_PROFILE=1", "OPACUS_PROFILE_FSDP=1" } do
      local text, code = output_of(("%s %s%s --profile off"):format("env " .. switch, program, tiny))
      assert.are.equal(0, code, text)
      local lines = select(2, text:gsub("moonshard profile: rank 0 step %d+: data [%d%.]+ forward", ""))
      assert.are.equal(3, lines, text)
      assert.is_nil(text:find("norm of ", 1, true))
    end
    assert.is_nil(output_of(("env -u MOONSHARD_PROFILE %s%s"):format(program, tiny)):find("moonshard profile: rank", 1, true))
  end)

  it("the detailed switch adds layers and both sides of the squared norms", function()
    local text = output_of(("env OPACUS_PROFILE_FSDP_DETAILED=1 %s%s --profile off"):format(program, tiny))
    for _, words in ipairs { "norms: stacking", "squared norms of this rank:", "squared norms of all ranks:", "norm of model.layers.0" } do
      assert.is_truthy(text:find(words, 1, true), words .. " in\n" .. text)
    end
  end)

  it("two ranks log norms of their own, and the same for all", function()
    local words = "env MOONSHARD_PROFILE=layers %s%s --nproc 2 --parallel fsdp --log-dir %s --profile off"
    local text = output_of(words:format(program, tiny, folder))
    local other = read(folder .. "/log.rank1.txt")
    local own, all = text:match("this rank: ([^\n]+)"), text:match("all ranks: ([^\n]+)")
    assert.is_truthy(own and all and other, text)
    assert.are_not.equal(own, other:match("this rank: ([^\n]+)"))
    assert.are.equal(all, other:match("all ranks: ([^\n]+)"))
    assert.is_truthy(text:find("all_gather", 1, true))
  end)

  it("SIGUSR2 traces the next steps of a running job, through the launcher on every rank", function()
    local script = folder .. "/job.lua"
    local file = assert(io.open(script, "w"))
    file:write([[
      local ms = require "moonshard"
      local tr = ms.trainer { model = ms.model("linear-tiny"), clip = ms.clip("none"), parallel = ms.ddp {},
        optimizer = ms.optim.sgd { lr = 0.01 }, data = ms.data.synthetic { batch_size = 4 } }
      -- Each rank takes the signal when it comes: the slower one may trace a later step, so both must be done.
      local own = arg[1] .. "/trace.rank" .. ms.dist.rank() .. ".json"
      for _ = 1, 30000 do
        tr:step()
        local done = io.open(own .. ".gz") or io.open(own)
        if done then done:close() end
        if ms.dist.all_reduce(done and 1 or 0, "min") == 1 then break end
        if ms.dist.rank() == 0 then io.open(arg[1] .. "/running", "w"):close() end
      end]])
    file:close()
    local words = "MOONSHARD_TRACE_DIR=%s MOONSHARD_TRACE_STEPS=1 %s run --nproc 2 --log-dir %s %s %s > %s/out.txt 2>&1 & echo $! > %s/pid"
    os.execute(words:format(folder, program, folder, script, folder, folder, folder))
    local function wait_for(path)
      for _ = 1, 600 do
        if read(path) then return true end
        os.execute("sleep 0.1")
      end
    end
    assert.is_true(wait_for(folder .. "/running"), read(folder .. "/out.txt"))
    os.execute(("kill -USR2 $(cat %s/pid)"):format(folder))
    local suffix = wait_for(folder .. "/trace.rank1.json.gz") and ".gz" or ""
    for rank = 0, 1 do
      local path = ("%s/trace.rank%d.json%s"):format(folder, rank, suffix)
      assert.is_true(wait_for(path), read(folder .. "/out.txt"))
      local text = output_of((suffix == ".gz" and "zcat " or "cat ") .. path)
      assert.is_truthy(text:find(('"rank":%d'):format(rank), 1, true))
      assert.is_truthy(text:find('"optimizer"', 1, true))
    end
    os.execute(("while kill -0 $(cat %s/pid) 2>/dev/null; do sleep 0.1; done"):format(folder))
  end)

  local function run_script(text, environment)
    local path = folder .. "/script.lua"
    local file = assert(io.open(path, "w"))
    file:write([[
      local ms = require "moonshard"
      local tr = ms.trainer { model = ms.model("linear-tiny", { device = "cpu" }), clip = ms.clip("none"),
        optimizer = ms.optim.sgd { lr = 0.01 }, data = ms.data.synthetic { batch_size = 4 } }
      ]] .. text)
    file:close()
    return output_of(("env %s %s run %s %s"):format(environment or "", program, path, folder))
  end

  it("an open trace and an experiment in one process leave each other alone", function()
    for _ = 1, 4 do
      local text, code = run_script([[
        tr:trace(arg[1] .. "/a.json", 3)
        tr:step()
        assert(ms.run { model = "llama3-tiny", mode = "ghost", seq_length = 16, iters = 2, device = "cpu" }.status == "ok")
        tr:step() tr:step()]])
      assert.are.equal(0, code, text)
      assert.is_truthy(read(folder .. "/a.json"))
    end
  end)

  it("a trace of fewer steps than were asked for is written at the end", function()
    local text, code = run_script([[tr:trace(arg[1] .. "/a.json", 10) tr:step() tr:step()]])
    assert.are.equal(0, code, text)
    assert.is_truthy(read(folder .. "/a.json"), text)
  end)

  it("a trace that cannot be written is refused at once", function()
    local text, code = run_script([[tr:trace(arg[1] .. "/none/a.json")]])
    assert.are.equal(1, code)
    assert.is_truthy(text:find("trace: expected a folder that can be written to, got", 1, true), text)
  end)

  it("SIGUSR2 with a folder that cannot be made does not end the job", function()
    local text, code = run_script([[
      tr:step()
      os.execute("kill -USR2 $PPID")
      for _ = 1, 3 do tr:step() end
      print("went on")]], "MOONSHARD_TRACE_DIR=/proc/none")
    assert.are.equal(0, code, text)
    assert.is_truthy(text:find("no trace: ", 1, true), text)
    assert.is_truthy(text:find("went on", 1, true), text)
  end)

  it("a profile with a trace leaves it beside the output", function()
    local text, code = output_of(("%s%s --profile trace --output %s/one.json"):format(program, tiny, folder))
    assert.are.equal(0, code, text)
    assert.is_truthy(read(folder .. "/one.trace.rank0.json.gz") or read(folder .. "/one.trace.rank0.json"))
    assert.is_truthy(text:find("of the detailed step, in phase", 1, true))
  end)

  it("out of memory says the phase, what was asked for and what was free", function()
    local text, code = output_of(("%s%s --batch-size 64 --memory-limit-mb 24 --json"):format(program, tiny))
    assert.are.equal(3, code)
    assert.is_truthy(text:match('"phase": "[a-z_]+"'), text)
    assert.is_truthy(text:match('"bytes_free": %d+'), text)
  end)
end)
