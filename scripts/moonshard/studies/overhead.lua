--- A study of what something costs over plain training: runs a sweep, prints the overhead table, draws all figures.
-- @tparam table plan as ms.sweep takes it
return function(plan)
  local runs = package.loaded["moonshard"].sweep(plan):run()
  if not runs then return end  -- after --dry-run
  print()
  print(runs:overhead { baseline = "none" })
  for _, path in ipairs(runs:plot "all") do print("picture: " .. path) end
end
