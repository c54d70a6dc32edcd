-- What a rank holds: predicted at full size, then held by one rank of four on this CPU, to the byte.
local ms = require "moonshard"

local function gib(bytes) return ("%10.4f"):format(bytes / 2 ^ 30) end

-- The model of PyTorch's FSDP tutorial, 8 x Linear(16384, 16384), batch 8192, SGD, on 8 ranks. Nothing of it is built.
print("8 ranks, GiB per rank             after model  after warm-up   (PyTorch)    parameters   gradients")
for _, parallel in ipairs { "ddp", "fsdp" } do
  local plan = ms.rank_memory { ranks = 8, model = "linear", parallel = parallel, batch_size = 8192, device = "cpu" }
  print(("%-32s %s %s              %s  %s"):format(parallel, gib(plan.pytorch_after_model_bytes), gib(plan.pytorch_after_warmup_bytes),
    gib(plan.parameter_bytes), gib(plan.gradient_bytes)))
end

print("\none rank of 4, bytes              parameters   gradients   optimizer    gathered at most")
for _, sharding in ipairs { "zero3", "zero2", "zero2_replicated" } do
  local trainer = ms.trainer {
    model = ms.model("llama3-tiny", { device = "cpu" }), optimizer = ms.optim.adamw {},
    data = ms.data.synthetic { batch_size = 2, seq_length = 16 },
    parallel = ms.fsdp { sharding = sharding, world = "fake:4", link = "instant" },
  }
  local held = trainer:step().sharding
  local plan = ms.rank_memory { ranks = 4, model = "llama3-tiny", parallel = "fsdp", sharding = sharding, optimizer = "adamw",
    batch_size = 2, seq_length = 16, device = "cpu" }
  print(("%-30s %13d %11d %11d %11d in %d units"):format(sharding, held.parameter_bytes, held.gradient_bytes, held.optimizer_bytes,
    held.gathered_peak_bytes, held.gathered_peak_units))
  for key, bytes in pairs { parameter_bytes = held.parameter_bytes, gradient_bytes = held.gradient_bytes,
    optimizer_bytes = held.optimizer_bytes, gathered_bytes = held.gathered_peak_bytes } do
    assert(plan[key] == bytes, key .. ": predicted " .. plan[key] .. ", held " .. bytes)
  end
end
