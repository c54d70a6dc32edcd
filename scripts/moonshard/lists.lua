--- Lists and tables: what the library does with them in many places.
local M = {}

--- What a function of each item and its index gives.
function M.map(list, read)
  local results = {}
  for i, item in ipairs(list) do results[i] = read(item, i) end
  return results
end

--- One field of each item; items without it leave no gap.
function M.column(list, key)
  local values = {}
  for _, item in ipairs(list) do values[#values + 1] = item[key] end
  return values
end

--- Tables with the same keys, turned: for each key the list of its values, as `zip` of a sweep takes them.
function M.columns(list)
  local columns = {}
  for i, item in ipairs(list) do
    for key, value in pairs(item) do
      columns[key] = columns[key] or {}
      columns[key][i] = value
    end
  end
  return columns
end

--- Items that a function accepts.
function M.select(list, accepts)
  local chosen = {}
  for _, item in ipairs(list) do
    if accepts(item) then chosen[#chosen + 1] = item end
  end
  return chosen
end

--- Puts the items of other lists behind those of the first, and returns it.
function M.extend(list, ...)
  for _, more in ipairs { ... } do
    for _, item in ipairs(more) do list[#list + 1] = item end
  end
  return list
end

--- The items as the keys of a table whose values are true.
function M.set(list)
  local is_in = {}
  for _, item in ipairs(list) do is_in[item] = true end
  return is_in
end

function M.contains(list, item) return M.set(list)[item] == true end

--- The items without repetitions, in the order in which they first come.
function M.unique(list)
  local seen = {}
  return M.select(list, function(item)
    local is_new = not seen[item]
    seen[item] = true
    return is_new
  end)
end

--- The keys of a table, sorted.
function M.keys(source)
  local keys = {}
  for key in pairs(source) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

--- A copy of tables together; a later one's values win.
function M.merged(...)
  local copy = {}
  for i = 1, select("#", ...) do
    for key, value in pairs((select(i, ...)) or {}) do copy[key] = value end
  end
  return copy
end

--- All matches of a pattern in a text.
function M.matches(text, pattern)
  local found = {}
  for match in text:gmatch(pattern) do found[#found + 1] = match end
  return found
end

return M
