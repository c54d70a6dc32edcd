--- moonshard engines: the clipping engines, and what each is verified on.
local native = require "moonshard.native"
local text_table = require "moonshard.text_table"

--- One row per layer kind, model, way to train and number format; one column per engine.
local function support_table(engines)
  local names, rows = { "" }, {}
  for _, engine in ipairs(engines) do names[#names + 1] = engine.name end
  for _, group in ipairs { { "layers", "layer" }, { "models", "model" }, { "options", "with" }, { "dtypes", "in" } } do
    local seen, order = {}, {}
    for _, engine in ipairs(engines) do
      for _, item in ipairs(engine[group[1]] or {}) do
        if not seen[item] then order[#order + 1] = item end
        seen[item] = seen[item] or {}
        seen[item][engine.name] = true
      end
    end
    for _, item in ipairs(order) do
      local row = { group[2] .. " " .. item }
      for _, engine in ipairs(engines) do row[#row + 1] = seen[item][engine.name] and "yes" or "-" end
      rows[#rows + 1] = row
    end
  end
  return text_table.format(names, rows)
end

return {
  usage = "[--json]",
  about = "Lists the clipping engines.",
  flags = { { name = "json", kind = "boolean", doc = "the same as JSON" } },
  run = function(given)
    local engines = package.loaded["moonshard"].engines()
    if given.json then
      io.write(native.records.to_json(engines))
      return 0
    end
    local rows = {}
    for i, engine in ipairs(engines) do
      rows[i] = { engine.name, engine.private and "yes" or "no", table.concat(engine.aliases, ", "), engine.doc }
    end
    print(text_table.format({ "engine", "private", "also called", "" }, rows))
    print("\nVerified against per-sample gradients (moonshard verify runs these cells; - is where an option means nothing to an engine):\n")
    print(support_table(engines))
    return 0
  end,
}
