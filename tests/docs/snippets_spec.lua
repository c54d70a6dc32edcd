--- Every snippet of README and docs runs, and what it shows is what it prints, figures masked (snippets.lua).
local support = require "tests.support.support"
local snippets = require "tests.docs.snippets"

local root, program = support.root(), support.program()
local quoted = support.shell_quoted
-- Small things that pages speak of: texts, labelled lines, a tokenizer, and run folders.
local FIXTURES = [[
local ms = require "moonshard"
local reviews = dofile(arg[1] .. "/examples/corpus/reviews.lua")
reviews.write("reviews.jsonl", 200, 1)
reviews.write_tokenizer "tokenizer.json"
os.execute "mkdir -p texts results"
local file = io.open("texts/one.txt", "w")
file:write(("All happy families are alike. "):rep(200))
file:close()
local runs = ms.sweep { name = "fixture", model = "llama3-tiny", iters = 3, warmup = 1, batch_size = 2, baseline = "no_dp",
  grid = { mode = { "no_dp", "flash" }, seq_length = { 8, 16, 32 } } }:run()
os.execute("cp -r " .. runs.path .. " results/run_A && cp -r " .. runs.path .. " results/run_B")
]]

-- A folder of its own per block, or per name of <!-- in: -->, with copies of the fixtures.
local fixtures, folders
local function folder_of(block)
  local known = block.folder and folders[block.folder]
  if known then return known end
  local folder = support.temporary_folder()
  os.execute(("cp -r %s/. %s"):format(quoted(fixtures), quoted(folder)))
  folders[block.folder or folder] = folder
  return folder
end

local function run(command, folder)
  command = command:gsub("^build/bin/moonshard%f[%s]", quoted(program)):gsub("^moonshard%f[%s]", quoted(program))
    :gsub("| moonshard%f[%s]", "| " .. quoted(program)):gsub("examples/", root .. "/examples/")
  local done = support.run(command, { folder = folder, seconds = 240, environment = { COLUMNS = "200", NO_COLOR = "1" } })
  done.output = done.out .. (done.code ~= 0 and done.err or "")
  return done
end

local function lines_of(text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do lines[#lines + 1] = line end
  return lines
end

local function without_empty(lines)
  local kept = {}
  for _, line in ipairs(lines) do if line:match "%S" then kept[#kept + 1] = line end end
  return kept
end

local function check_output(where, wanted, got)
  local same, line, came = snippets.match(without_empty(wanted), without_empty(lines_of(got)))
  assert(same, ("%s: expected the line\n  %s\ngot\n  %s\nof\n%s"):format(where, tostring(line), tostring(came), got))
end

local check = {}

function check.lua(where, block)
  local folder = folder_of(block)
  local text = table.concat(block.lines, "\n")
  local head = text:find('require "moonshard"', 1, true) and "" or 'local ms = require "moonshard"\n'
  support.write(folder .. "/snippet.lua", head .. (block.with or "") .. "\n" .. text .. "\n")
  local done = run("moonshard run snippet.lua", folder)
  assert(done.code == 0, where .. ": " .. done.output)
  local printed, at = lines_of(done.output), 1
  for _, promise in ipairs(snippets.promises(block.lines)) do
    while at <= #printed and snippets.masked(printed[at]) ~= snippets.masked(promise) do at = at + 1 end
    assert(at <= #printed, ("%s: expected to print\n  %s\ngot\n%s"):format(where, promise, done.output))
  end
end

local function check_prompt(where, block)
  local typed, wanted = {}, {}
  for _, line in ipairs(block.lines) do
    local code = line:match "^ms> (.*)$"
    if code then
      typed[#typed + 1] = code
    elseif #typed > 0 then
      wanted[#wanted + 1] = line
    end
  end
  local folder = folder_of(block)
  support.write(folder .. "/typed", table.concat(typed, "\n") .. "\n")
  check_output(where, wanted, run("moonshard repl < typed", folder).output)
end

-- Two pages may show the same command.
local ran = {}
local function check_console(where, block)
  if block.lines[1]:match "moonshard repl$" then return check_prompt(where, block) end
  local folder = folder_of(block)
  for _, step in ipairs(snippets.commands(block.lines)) do
    local done = ran[step.command] or run(step.command, folder)
    ran[step.command] = done
    assert(done.code == 0, ("%s: %s ended with %d:\n%s"):format(where, step.command, done.code, done.output))
    check_output(where .. ": " .. step.command, step.output, done.output)
  end
end

-- A list of commands: verbs and flags exist.
local helps = {}
local function check_flags(where, line)
  local words = line:gsub("%s#.*$", ""):match "moonshard%s+(.*)$"
  local verb = words and words:match "^([%l]+)"
  if not verb or line:match "^#" then return end
  if words:match "^sweep %l" then verb = words:match "^sweep %S+" end
  helps[verb] = helps[verb] or run("moonshard " .. verb .. " --help", root).output
  assert(helps[verb]:match "usage", where .. ": no verb " .. verb)
  for flag in words:gmatch "%-%-[%l%-]+" do
    helps.profile = helps.profile or run("moonshard profile --help", root).output
    assert(helps[verb]:find(flag, 1, true) or helps.profile:find(flag, 1, true), ("%s: moonshard %s has no %s"):format(where, verb, flag))
  end
end

check[""] = function(where, block)
  if block.lines[1]:match "^%$ " then return check_console(where, block) end
  for _, line in ipairs(block.lines) do
    if line:match "^moonshard " or line:match "^build/bin/moonshard " then check_flags(where, line) end
  end
end

function check.json(where, block)
  local folder = folder_of(block)
  support.write(folder .. "/snippet.plot.json", table.concat(block.lines, "\n"))
  local done = support.run(("%s-view --render snippet.plot.json -o out.png"):format(program), { folder = folder, seconds = 60 })
  assert(done.code == 0, where .. ": " .. done.err)
end

local function pages()
  local list = { "README.md" }
  for _, name in ipairs(support.list(root .. "/docs")) do
    -- The examples of reference.md share their first lines; tests/scripts/reference_spec.lua runs them.
    if name:match "%.md$" and name ~= "reference.md" then list[#list + 1] = "docs/" .. name end
  end
  return list
end

describe("snippets of", function()
  setup(function()
    folders, fixtures = {}, support.temporary_folder()
    support.write(fixtures .. "/fixtures.lua", FIXTURES)
    local done = run(("moonshard run fixtures.lua %s"):format(quoted(root)), fixtures)
    assert(done.code == 0, done.output)
  end)
  teardown(function()
    for _, folder in pairs(folders) do support.remove(folder) end
    support.remove(fixtures)
  end)

  for _, page in ipairs(pages()) do
    for _, block in ipairs(snippets.blocks(support.read(root .. "/" .. page))) do
      local where = ("%s:%d"):format(page, block.line)
      if not block.not_run and check[block.language] then
        it(where, function() check[block.language](where, block) end)
      end
    end
  end

  it("a language that nobody checks are none", function()
    local unknown = {}
    for _, page in ipairs(pages()) do
      for _, block in ipairs(snippets.blocks(support.read(root .. "/" .. page))) do
        if not check[block.language] and not block.not_run then
          unknown[#unknown + 1] = ("%s:%d %s"):format(page, block.line, block.language)
        end
      end
    end
    assert.are.same({}, unknown)
  end)
end)

describe("the check of snippets", function()
  it("notices another word, a missing and a further line, not other figures", function()
    local wanted = { "step  12.5 ms", "…", "done in 3 s" }
    assert.is_true(snippets.match(wanted, { "step 7 ms", "anything", "done in 14 s" }))
    assert.is_false((snippets.match(wanted, { "pass 7 ms", "done in 14 s" })))
    assert.is_false((snippets.match(wanted, { "step 7 ms", "done in 14 s", "more" })))
    assert.is_false((snippets.match(wanted, { "step 7 ms", "anything" })))
  end)
  it("reads fences and the comments before them", function()
    local blocks = snippets.blocks "<!-- not run: no GPU here -->\n```lua\nx\n```\ntext\n```\n$ a\nb\n```\n"
    assert.are.equal("no GPU here", blocks[1].not_run)
    assert.are.equal("lua", blocks[1].language)
    assert.is_nil(blocks[2].not_run)
    assert.are.same({ { command = "a", output = { "b" } } }, snippets.commands(blocks[2].lines))
  end)
end)
