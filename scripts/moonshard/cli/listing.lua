--- What `moonshard engines` and `moonshard models` share: a list of the module as text, or as JSON.
local native = require "moonshard.native"

--- @tparam string name of the function of the module that gives the list
-- @tparam string about what help says
-- @tparam function print_text of the list
return function(name, about, print_text)
  return {
    usage = "[--json]",
    about = about,
    flags = { { name = "json", kind = "boolean", doc = "the same as JSON" } },
    run = function(given)
      local list = package.loaded["moonshard"][name]()
      if given.json then io.write(native.records.to_json(list)) else print_text(list) end
      return 0
    end,
  }
end
