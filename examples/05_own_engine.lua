--- A clipping engine and a gradient rule of one's own, proven by the same comparison as the built-in ones.
-- At the seam every layer hands over its input a and the gradient g of its output, sample by sample. An engine
-- makes each sample's squared norm of them; clipping, sums, tied weights and noise stay the runtime's.
-- Run: moonshard run examples/05_own_engine.lua
local ms = require "moonshard"

--- [B, ..., d] -> [B, T, d]; one vector per sample is one position.
local function positions(x) return x:reshape(x.shape[1], -1, x.shape[x.dims]) end
local function squares(x) return (x * x):reshape(x.shape[1], -1):sum(2) end
local function gram(x) return x:matmul(x:transpose()) end

-- Squared norms by kind of layer, without any gradient: only T x T numbers per sample.
local norms = {}

function norms.linear(a, g)
  return (gram(positions(a)) * gram(positions(g))):sum(3):sum(2)
end

function norms.embedding(ids, g)
  local B, T = ids.shape[1], ids.shape[2]
  local distance = (ids:reshape(B, T, 1) - ids:reshape(B, 1, T)):abs()
  local same = (distance:to "float64" * -1000):exp()  -- 1 where two positions have the same id, else 0
  return (same * gram(g)):sum(3):sum(2)
end

function norms.rms_norm(a, g) return squares((positions(a) * positions(g)):sum(2)) end

ms.register_engine("gram", {
  doc = "Gram matrices in Lua, then a second backward pass",
  keep = "nothing",
  norms = function(layer, a, g)
    local of_kind = norms[layer.kind] or error("no norms for kind " .. layer.kind)
    return ms.scope(function() return of_kind(a, g) end)
  end,
})

--- Compares with batch-of-one gradients by plain autograd; returns how many cells failed.
local function judge(title, engine, options)
  local report = ms.verify { engine = engine, options = options, model = "llama3.1-tiny", dtype = "float64", device = "cpu" }
  local worst, wrong_norms = 0, {}
  for _, cell in ipairs(report.cells) do
    worst = math.max(worst, cell.max_rel_err or math.huge)
    if not cell.ok and cell.worst == "norm" then wrong_norms[#wrong_norms + 1] = cell.task .. " " .. cell.layer end
  end
  print(("%-36s %3d cells, %d failed, largest error %.1e %s"):format(
    title, #report.cells, report.failed, worst, table.concat(wrong_norms, ", ")))
  return report.failed
end
assert(judge("engine gram", "gram", "default") == 0)
assert(judge("engine gram, two micro-batches", "gram", "accumulation") == 0)

-- It trains like any other.
local trainer = ms.trainer {
  model = ms.model("llama3.1-tiny", { task = "lm", device = "cpu" }),
  clip = ms.clip("gram", { max_grad_norm = 0.5 }),
  data = ms.data.synthetic { batch_size = 4, seq_length = 16 },
}
local report = trainer:step()
print(("%s: norms %.2f %.2f %.2f %.2f"):format(tostring(trainer), unpack(report.norms)))

-- A mistake: repeated ids of an embedding taken for different ones. The proof finds it.
local right = norms.embedding
norms.embedding = function(_, g) return squares(g) end
assert(judge("a wrong norm of embeddings", "gram", "default") > 0)
norms.embedding = right

-- A rule says what one sample's gradient is; then every engine can train layers of that kind.
ms.register_rule("rms_norm", { per_sample = function(_, a, g) return (positions(a) * positions(g)):sum(2) end })
assert(judge("all engines, rule of rms_norm in Lua", nil, "accumulation") == 0)
