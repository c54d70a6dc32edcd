--- Fenced blocks of a Markdown page, and what a comment before a fence says about running them:
--   <!-- with: LUA -->        code that comes before the block's (names that the text around it has introduced)
--   <!-- in: NAME -->         runs in the folder that earlier blocks of that name ran in
--   <!-- not run: REASON -->  needs what a test does not have
local M = {}

--- Blocks in order: { language, lines, line (of its fence), with, folder, not_run }.
function M.blocks(text)
  local blocks, open, notes, number = {}, nil, {}, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    local fence = line:match "^```(.*)$"
    if fence and open then
      blocks[#blocks + 1], open, notes = open, nil, {}
    elseif fence then
      open = { language = fence, lines = {}, line = number, with = notes.with, folder = notes["in"], not_run = notes["not run"] }
    elseif open then
      open.lines[#open.lines + 1] = line
    else
      local key, value = line:match "^<!%-%- (.-): (.*) %-%->$"
      if key then
        notes[key] = value
      elseif line ~= "" then
        notes = {}
      end
    end
  end
  assert(not open, "a fence is not closed")
  return blocks
end

--- The text without what differs from run to run and machine to machine: figures, names with dates, and the widths of columns.
function M.masked(line)
  line = line:gsub(", within noise", ""):gsub("run_%d+_%d+", "run_#"):gsub("%-%-%-+", "---")
  line = line:gsub("%f[%w_]%-?%d[%d%.]*[eE][%+%-]?%d+", "#"):gsub("%-?%f[%d]%d[%d%.,]*%d", "#"):gsub("%-?%f[%d]%d", "#")
  line = line:gsub("[KMGT]iB", "MiB"):gsub("[%+%-]#", "#")
  return (line:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end

--- Whether lines are what was wanted, masked; a wanted line "…" stands for any number of lines. Returns false and the first that differs.
function M.match(wanted, got)
  local at = 1
  local open = false
  for _, line in ipairs(wanted) do
    if line == "…" then
      open = true
    else
      local mask = M.masked(line)
      local found
      for place = at, #got do
        if M.masked(got[place]) == mask then
          found = place
          break
        end
        if not open then break end
      end
      if not found then return false, line, got[at] end
      at, open = found + 1, false
    end
  end
  if not open and at <= #got then return false, "(the end)", got[at] end
  return true
end

--- Commands of a console block with the output that each shows: { command, output lines }.
function M.commands(lines)
  local list = {}
  for _, line in ipairs(lines) do
    local command = line:match "^%$ (.*)$"
    if command then
      list[#list + 1] = { command = command, output = {} }
    else
      table.insert(list[#list].output, line)
    end
  end
  return list
end

--- What `print(…)   --> text` comments promise, in order.
function M.promises(lines)
  local list = {}
  for _, line in ipairs(lines) do
    local promise = line:match "%-%->%s*(.-)%s*$"
    if promise and line:match "print" then list[#list + 1] = promise end
  end
  return list
end

return M
