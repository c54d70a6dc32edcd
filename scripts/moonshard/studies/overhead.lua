--- A study of what something costs over plain training: runs a sweep, prints the overhead table, draws all figures.
-- @tparam table plan as ms.sweep takes it
return function(plan)
  local runs = package.loaded["moonshard"].sweep(plan):run()
  if runs.is_dry then return end
  print()
  print(runs:overhead { baseline = "none" })
  for _, path in ipairs(runs:plot "all") do print("picture: " .. path) end
end
