--- moonshard audit from outside: table, JSON, exit codes, two real ranks, ms.audit.
local support = require "tests.support.support"
local ms = require "moonshard"

local quoted = support.shell_quoted(support.program())
local function run(words) return support.run(quoted .. " audit " .. words, { folder = "/tmp" }) end

describe("audit", function()
  it("prints a row per engine and exits 0 when no bound is above the claim", function()
    local result = run("--canaries 400 --trials 20")
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.matches("^engine +claimed +one%-run +Gaussian DP +Clopper%-Pearson +lower bounds are\n", result.out)
    for _, engine in ipairs { "materialize", "ghost", "flash", "bookkeeping", "flash_bookkeeping", "auto" } do
      assert.matches("\n" .. engine .. " +4%.377 +%d+%.%d+ +%d+%.%d+ +%d+%.%d+  below the claim\n", result.out)
    end
    assert.matches("\nsigma 1, delta 1e%-05, 400 canaries, 1 seed; 0 of 6 audits above the claim", result.out)
  end)

  it("a deliberate mistake is named by the experiment that saw it, and exits 4", function()
    local result = run("--engine flash_clip --trials 4 --seeds 2 --fault noise_over_sqrt2")
    assert.are.equal(4, result.code, result.out .. result.err)
    assert.matches("\nflash [^\n]+ ABOVE THE CLAIM %(projection%) in 2 of 2 seeds\n", result.out)
  end)

  it("--json has every audit with its bounds, and neither coins nor scores nor seeds", function()
    local result = run("--engine ghost --canaries 100 --trials 4 --seeds 3 --sigma 2 --delta 1e-6 --json")
    assert.are.equal(0, result.code, result.err)
    local report = support.parse_json(result.out)
    assert.are.equal(3, #report.audits)
    assert.are.equal(0, report.exceeded)
    assert.are.equal(2, report.sigma)
    for i, audit in ipairs(report.audits) do
      assert.are.equal(i - 1, audit["repeat"])
      assert.is_true(audit.holds)
      assert.are.equal("", audit.exceeding)
      for _, key in ipairs { "one_run", "gaussian_dp", "clopper_pearson" } do
        assert.is_true(audit[key] >= 0 and audit[key] <= audit.claimed_epsilon, key)
        for _, name in ipairs { "projection", "difference", "scale", "silence" } do assert.is_number(audit.experiments[name][key]) end
      end
    end
    for _, secret in ipairs { '"seed"', "coin", "score", "member" } do assert.is_nil(result.out:find(secret, 1, true), secret) end
  end)

  it("two ranks keep the promise, and their faults are found", function()
    local words = "--nproc 2 --parallel %s --engine bookkeeping --trials %d --json "
    local honest = run(words:format("fsdp", 40))
    assert.are.equal(0, honest.code, honest.out .. honest.err)
    local report = support.parse_json(honest.out)
    assert.are.equal(2, report.world)
    assert.are.equal("fsdp", report.parallel)
    assert.is_true(report.audits[1].gaussian_dp > 2.5)
    for fault, wrapper in pairs { noise_over_world = "ddp", noise_before_reduction = "fsdp", clipping_per_shard = "fsdp" } do
      local result = run(words:format(wrapper, 4) .. "--fault " .. fault)
      assert.are.equal(4, result.code, fault .. ": " .. result.out .. result.err)
      assert.matches("projection", support.parse_json(result.out).audits[1].exceeding, 1, true)
    end
  end)

  it("unknown names and values exit 2, before any work", function()
    for words, text in pairs {
      ["--engine gohst"] = "got 'gohst'; did you mean 'ghost'?",
      ["--engine none"] = "expected a private engine, got none, which promises nothing",
      ["--fault noise_over_sqrt3"] = "got 'noise_over_sqrt3'; did you mean 'noise_over_sqrt2'?",
      ["--canarys 4"] = "unknown option 'canarys'; did you mean 'canaries'?",
      ["--canaries 3"] = "option 'canaries': expected",
      ["--sigma 0"] = "option 'sigma': expected",
      ["--parallel fsdp --world fake:2"] = "expected real ranks, got world = fake:2",
    } do
      local result = run(words)
      assert.are.equal(2, result.code, words .. ": " .. result.out)
      assert.matches(text, result.err, 1, true)
      assert.are.equal("", result.out, words)
    end
  end)

  it("ms.audit returns the same as a table", function()
    local report = ms.audit { engine = "ghost", canaries = 100, trials = 4 }
    assert.are.equal(1, #report.audits)
    assert.are.equal(0, report.exceeded)
    assert.is_true(report.audits[1].holds)
    assert.is_true(math.abs(report.audits[1].claimed_epsilon - 4.3772) < 1e-4)
    assert.has_error(function() ms.audit { engin = "ghost" } end,
      "ms.audit: unknown option 'engin'; did you mean 'engine'? known: engine, clipping, seeds, canaries, trials, sigma, delta, " ..
      "significance, secure, device, seed")
    assert.has_error(function() ms.audit { fault = "no_clipping" } end)
  end)
end)
