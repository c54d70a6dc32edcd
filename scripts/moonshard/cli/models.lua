--- moonshard models: the presets, with what they cost.
local lists = require "moonshard.lists"
local listing = require "moonshard.cli.listing"
local text_table = require "moonshard.text_table"

local columns = { "model", "task", "parameters", "FLOPs/token", "GiB at batch 1", "batch", "tokens", "" }

return listing("models", "Lists the model presets.", function(models)
  print(text_table.format(columns, lists.map(models, function(model)
    return { model.name, model.task, text_table.with_unit(model.num_parameters, { "", " k", " M", " G" }),
      text_table.with_unit(model.flops_per_token, { "", " k", " M", " G", " T" }), ("%.3g"):format(model.memory_batch_1_bytes / 2 ^ 30),
      model.batch_size, model.seq_length, model.doc }
  end)))
  print("\nFLOPs: forward and backward of one token at the preset's length. Memory: parameters, gradients and activations of a")
  print("plain step of one sample in float32, without optimizer state. batch and tokens are what an experiment takes when it")
  print("names none. Every size is an option: moonshard profile --help.")
end)
