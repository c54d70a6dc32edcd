--- moonshard engines: the clipping engines, and what each is verified on.
local lists = require "moonshard.lists"
local listing = require "moonshard.cli.listing"
local text_table = require "moonshard.text_table"

--- One row per layer kind, model, way to train and number format; one column per engine.
local function support_table(engines)
  local rows = {}
  for _, group in ipairs { { "layers", "layer" }, { "models", "model" }, { "options", "with" }, { "dtypes", "in" } } do
    for _, item in ipairs(lists.unique(lists.extend({}, unpack(lists.column(engines, group[1]))))) do
      rows[#rows + 1] = lists.extend({ group[2] .. " " .. item }, lists.map(engines, function(engine)
        return lists.contains(engine[group[1]] or {}, item) and "yes" or "-"
      end))
    end
  end
  return text_table.format(lists.extend({ "" }, lists.column(engines, "name")), rows)
end

return listing("engines", "Lists the clipping engines.", function(engines)
  print(text_table.format({ "engine", "private", "also called", "" }, lists.map(engines, function(engine)
    return { engine.name, engine.private and "yes" or "no", table.concat(engine.aliases, ", "), engine.doc }
  end)))
  print("\nVerified against per-sample gradients (moonshard verify runs these cells; - is where an option means nothing to an engine):\n")
  print(support_table(engines))
end)
