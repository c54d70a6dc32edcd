--- Which samples real ranks train on, from ms.data.loader to the trainer's reports. A model that stands still gives every
-- example a norm of its own, by which a report's samples are known.
local support = require "tests.support.support"

local quoted = support.shell_quoted(support.program())
local folder

before_each(function() folder = support.temporary_folder() end)
after_each(function() support.remove(folder) end)

local script = [[
local ms = require "moonshard"
local examples, batch, steps = 23, 6, tonumber(arg[1])
local rate, rank, world = batch / examples, ms.dist.rank(), ms.dist.world()
local parallel = world > 1 and ms.fsdp {} or nil

local function new_model()
  return ms.model("llama3-tiny", { device = "cpu", dtype = "float64", num_layers = 1, hidden_dim = 16, intermediate_dim = 16, head_dim = 8,
    vocab_size = 256, task = "classify", seed = 5 })
end
local dataset = ms.data.classification { file = "lines.jsonl", max_length = 6, model = new_model() }
assert(dataset:size() == examples)

-- Every rank takes all examples: its own norms are theirs, in order.
local numbers, id_of = {}, {}
for i = 1, examples do numbers[i] = i end
local look = ms.trainer { model = new_model(), parallel = parallel, optimizer = ms.optim.sgd { lr = 0 },
  clip = ms.clip("bookkeeping", { noise_multiplier = 0 }), privacy = { secure = false } }
for i, norm in ipairs(look:step(dataset:batch(numbers)).norms) do
  local name = ("%.9g"):format(norm)
  assert(not id_of[name], "two examples have the norm " .. name)
  id_of[name] = i
end

local function ids_of(norms)
  local ids, seen = {}, {}
  for i, norm in ipairs(norms) do
    local id = assert(id_of[("%.9g"):format(norm)], "no example has the norm " .. norm)
    assert(not seen[id], "example " .. id .. " twice in one step")
    ids[i], seen[id] = id, true
  end
  return ids, seen
end

local function audit(secure)
  local sigma = 1.3
  local trainer = ms.trainer { model = new_model(), parallel = parallel, optimizer = ms.optim.sgd { lr = 0 },
    clip = ms.clip("bookkeeping", { noise_multiplier = sigma }), privacy = { secure = secure, delta = 1e-5 },
    data = ms.data.loader { dataset = dataset, sampler = "poisson", batch_size = examples, expected_batch_size = batch } }
  local count, both, sizes, squares, drawn = {}, {}, 0, 0, {}
  for i = 1, examples do
    count[i], both[i] = 0, {}
    for j = 1, examples do both[i][j] = 0 end
  end
  for step = 1, steps do
    local report = trainer:step()
    local ids, seen = ids_of(report.all_norms or report.norms)
    for _, id in ipairs(ids_of(report.norms)) do assert(seen[id], "a sample that the others do not know of") end
    assert(report.batch_size == #ids)
    for _, i in ipairs(ids) do
      count[i] = count[i] + 1
      for _, j in ipairs(ids) do both[i][j] = both[i][j] + 1 end
    end
    sizes, squares = sizes + #ids, squares + #ids * #ids
    table.sort(ids)
    drawn[step] = table.concat(ids, " ")
    -- Every rank sees the same step.
    local digest = 0
    for place, id in ipairs(ids) do digest = (digest * 31 + id * place) % 1000003 end
    assert(ms.dist.all_reduce(digest, "max") == digest and ms.dist.all_reduce(digest, "min") == digest, "ranks see different steps")
  end
  -- Each example with probability B / N, and each pair as if they knew nothing of each other.
  local function z(seen, p) return (seen - steps * p) / math.sqrt(steps * p * (1 - p)) end
  local singles, pairs_sum, num_pairs = 0, 0, 0
  for i = 1, examples do
    assert(math.abs(z(count[i], rate)) < 5.5, ("example %d: %d of %d steps"):format(i, count[i], steps))
    singles = singles + z(count[i], rate) ^ 2
    for j = i + 1, examples do
      -- Of a few steps pairs are too rare to be normally distributed.
      local pair = z(both[i][j], rate * rate)
      assert(steps < 300 or math.abs(pair) < 7.5, ("examples %d and %d: %d of %d steps"):format(i, j, both[i][j], steps))
      pairs_sum, num_pairs = pairs_sum + pair ^ 2, num_pairs + 1
    end
  end
  assert(singles < examples + 9 * math.sqrt(2 * examples), singles)
  assert(steps < 300 or pairs_sum < num_pairs + 9 * math.sqrt(2 * num_pairs * 4), pairs_sum)
  local mean, variance = sizes / steps, squares / steps - (sizes / steps) ^ 2
  assert(math.abs(mean - batch) < 5.5 * math.sqrt(batch * (1 - rate) / steps), mean)
  local spread = variance / (batch * (1 - rate))
  assert(math.abs(spread - 1) < 8 * math.sqrt(2 / steps), "batches are not drawn independently: " .. spread)
  -- The claim is the accountant's for this rate.
  local claim = trainer:privacy()
  if secure then
    local want = ms.privacy.epsilon { method = "pld", q = rate, sigma = sigma, steps = steps, delta = 1e-5 }.epsilon
    assert(math.abs(claim.epsilon / want - 1) < 1e-9, claim.epsilon .. " for " .. want)
    assert(claim.sampling_rate == rate and claim.noise == "secure")
  else
    assert(claim.epsilon == nil and claim.why_no_epsilon:find("not private", 1, true), claim.why_no_epsilon)
  end
  return table.concat(drawn, ";")
end

local plain, secret = audit(false), audit(true)
assert(plain ~= secret)
if rank == 0 then print(plain) end
]]

describe("samples of real ranks", function()
  it("are drawn by the claimed law, once each, and reproducible ones are those of one process", function()
    local lines = {}
    for i = 1, 23 do lines[i] = ('{"text": "%s", "label": %d}'):format(string.char(96 + i):rep(1 + i % 5) .. i, i % 2) end
    support.write(folder .. "/lines.jsonl", table.concat(lines, "\n") .. "\n")
    support.write(folder .. "/script.lua", script)
    local drawn = {}
    for ranks = 1, 3 do
      -- Ranks are slow: a short run, which begins as the long one of one process does.
      local command = ("%s run --nproc %d --log-dir %s/logs script.lua %d"):format(quoted, ranks, folder, ranks == 1 and 300 or 40)
      local result = support.run(command, { folder = folder, seconds = 120 })
      assert.are.equal(0, result.code, result.out .. result.err)
      drawn[ranks] = result.out:match("^[^\n]*")
    end
    assert.are.equal(drawn[1]:sub(1, #drawn[2]), drawn[2])
    assert.are.equal(drawn[2], drawn[3])
    assert.is_true(#drawn[2] > 400)
  end)
end)
