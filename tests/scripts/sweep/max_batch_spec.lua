--- ms.find_max_batch: the answer is the largest that fits, tries are recorded, and the search can be cut off.
local support = require "tests.support.sweeps"
local ms = require "moonshard"

local place
local experiment
before_each(function() place = support.place() end)
after_each(function() place:remove() end)

local linear = [[model = "linear-tiny", device = "cpu", hidden_dim = 340, num_layers = 2, seq_length = 8, threads = 1, iters = 1,
  warmup = 1, memory_limit_mb = %d]]
before_each(function() experiment = linear end)

local function search(words, limit)
  place:script(([[
    local found = ms.find_max_batch { out = "OUT", %s, %s }
    print("answer", found.batch_size, found.failed_at, found.peak_memory_bytes)
    for _, try in ipairs(found.tries) do print("try", try.batch_size, try.status) end
    print(found)]]):format(experiment:format(limit or 2), words))
  return place:run("run sweep.lua", { seconds = 120 })
end

--- Whether a batch fits, by running it alone.
local function fits(batch_size, limit)
  local result = place:run(("profile --model linear-tiny --device cpu --hidden-dim 340 --num-layers 2 --seq-length 8 --threads 1 --iters 1 "
    .. "--warmup 1 --memory-limit-mb %d --batch-size %d"):format(limit or 2, batch_size))
  return result.code == 0
end

describe("find_max_batch", function()
  it("finds the batch that fits, where one more does not", function()
    local result = search("verify = true")
    assert.are.equal(0, result.code, result.err)
    local best, failed, peak = result.out:match("answer\t(%d+)\t(%d+)\t(%d+)")
    best, failed = tonumber(best), tonumber(failed)
    assert.are.equal(best + 1, failed, result.out)
    local size = ("%.1f"):format(tonumber(peak) / 2 ^ 20)
    assert.matches(("\nbatch_size %d fits, peak %s MiB; %d does not; "):format(best, size, failed), result.out, 1, true)
    assert.is_true(fits(best))
    assert.is_false(fits(failed))
    assert.is_true(tonumber(peak) > 0)
    local runs = ms.load(place:run_path())
    assert.is_true(runs:count("oom") > 0 and runs:count("ok") > 0)
    assert.are.same({ "batch_size" }, runs.axes)

    -- Again from the folder: every try is known.
    local again = search(('resume = "%s"'):format(place:run_path()))
    assert.are.equal(0, again.code, again.err)
    assert.are.equal(best, tonumber(again.out:match("answer\t(%d+)")))
    assert.is_nil(again.out:find("[1/1]", 1, true))
    assert.are.equal(#runs.points, #ms.load(place:run_path()).points)
  end)

  it("starts at the predicted batch, and needs few tries around it", function()
    experiment = [[model = "llama3-tiny", device = "cpu", mode = "bookkeeping", seq_length = 64, threads = 1, iters = 1, warmup = 1,
      memory_limit_mb = %d]]
    local result = search("verify = false", 160)
    assert.are.equal(0, result.code, result.err)
    local best, tries = tonumber(result.out:match "answer\t(%d+)"), {}
    for size in result.out:gmatch "try\t(%d+)" do tries[#tries + 1] = tonumber(size) end
    assert.is_true(math.abs(tries[1] / best - 1) < 0.1, result.out)
    -- Doubling from 1 and halving the gap would take twice its logarithm: 13.
    assert.is_true(#tries <= 7, result.out)
  end)

  it("high is an answer when it fits, and low may be too large", function()
    local result = search("high = 3, verify = false")
    assert.matches("answer\t3\tnil\t%d+", result.out)
    os.execute("rm -r " .. place.path .. "/results")
    result = search("low = 100000")
    assert.matches("answer\tnil\t100000\tnil", result.out)
    assert.matches("\nno batch fits, not even 100000; 1 try in ", result.out, 1, true)
  end)

  it("mistakes are raised at the caller's line, before a folder is made", function()
    for text, options in pairs {
      ["option 'low': expected a whole number from 1, got 0"] = { low = 0 },
      ["option 'high': expected 4 or more, got 2"] = { low = 4, high = 2 },
      ["option 'batch_size': expected low and high, got a batch size"] = { batch_size = 4 },
      ["unknown option 'modle'; did you mean 'model'?"] = { modle = "x" },
      ["option 'verify': expected a boolean, got 1"] = { verify = 1 },
      ["expected memory_limit_mb or high on a CPU, got neither"] = { model = "linear-tiny", device = "cpu" },
    } do
      options.out = place.path .. "/results"
      local ok, message = pcall(function() return ms.find_max_batch(options), 1 end)
      assert.is_false(ok)
      assert.matches("max_batch_spec%.lua:%d+: ms%.find_max_batch: ", message)
      assert.matches(text, message, 1, true)
    end
    assert.is_nil(place:run_path())
  end)
end)
