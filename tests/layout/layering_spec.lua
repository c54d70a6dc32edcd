--- Which folder may know which (style.md section 3, design.md section 1), read from the #include lines and the
-- require calls; and the size that a file may have.
local root = debug.getinfo(1, "S").source:sub(2):match("^(.*)tests/layout/layering_spec%.lua$")
if root == "" then root = "./" end

local function files(folder, names)
  local list = {}
  local pipe = assert(io.popen(("cd '%s' && find %s -type f \\( %s \\) | sort"):format(root, folder, names), "r"))
  for path in pipe:lines() do list[#list + 1] = path end
  pipe:close()
  return list
end

local cpp_names = "-name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh'"

local function lines_of(path)
  local lines = {}
  for line in io.lines(root .. path) do lines[#lines + 1] = line end
  return lines
end

--- All includes of a folder: { file, line, name, quoted }.
local function includes(folder)
  local list = {}
  for _, path in ipairs(files(folder, cpp_names)) do
    for number, line in ipairs(lines_of(path)) do
      local mark, name = line:match('^%s*#%s*include%s*([<"])([^>"]+)[>"]')
      if name then list[#list + 1] = { file = path, line = number, name = name, quoted = mark == '"' } end
    end
  end
  return list
end

local function matches_any(name, patterns)
  for _, pattern in ipairs(patterns) do
    if name:match(pattern) then return true end
  end
  return false
end

--- Fails with the file and line of every include that `is_wrong` names.
local function expect_none(list, is_wrong)
  local wrong = {}
  for _, include in ipairs(list) do
    local reason = is_wrong(include)
    if reason then
      wrong[#wrong + 1] = ("%s:%d includes %s%s"):format(include.file, include.line, include.name, reason ~= true and ": " .. reason or "")
    end
  end
  if #wrong > 0 then error(#wrong .. " includes against the rule\n  " .. table.concat(wrong, "\n  "), 0) end
end

local own_folders = { "^runtime/", "^bindings/", "^kernels/", "^viewer/", "^tests/", "^examples/", "^scripts/" }
local torch = { "^ATen/", "^c10/", "^torch/", "^caffe2/" }
local lua = { "^lua%.h", "^lauxlib%.h", "^lualib%.h", "^luajit%.h", "^lua%.hpp", "^sol/", "^sol%.hpp" }
local drawing = { "^imgui", "^implot", "^GLFW/", "^GL/", "^EGL/", "^glad", "^stb[_/]" }

-- Options, names and their one-line docs: torch-free, seen by all (style.md section 3).
local descriptors = { "^runtime/[%w_/]+_options%.", "^runtime/[%w_/]+_names%.",
  "^runtime/models/famil[%w_]+%.h$", "^runtime/comm/links%.h$", "^runtime/sharding/unit_policy%." }

describe("layers", function()
  it("nobody includes tests or examples", function()
    for _, folder in ipairs { "runtime", "bindings", "kernels", "viewer" } do
      expect_none(includes(folder), function(include) return matches_any(include.name, { "^tests/", "^examples/", "%.%./" }) end)
    end
  end)

  it("kernels see kernels, LibTorch, CUDA, and of the runtime only base", function()
    expect_none(includes("kernels"), function(include)
      if matches_any(include.name, { "^runtime/base/", "^kernels/" }) then return false end
      return matches_any(include.name, own_folders) or matches_any(include.name, lua) or matches_any(include.name, drawing)
    end)
  end)

  it("the runtime sees neither Lua nor the bindings nor the viewer", function()
    expect_none(includes("runtime"), function(include)
      return matches_any(include.name, { "^bindings/", "^viewer/" }) or matches_any(include.name, lua) or matches_any(include.name, drawing)
    end)
  end)

  it("the runtime sees of the kernels only the headers <op>/<op>.h, and which way an operation runs", function()
    expect_none(includes("runtime"), function(include)
      local folder, header = include.name:match("^kernels/([^/]+)/([^/]+)%.h$")
      return include.name:match("^kernels/") ~= nil and folder ~= header and include.name ~= "kernels/common/choice.h"
    end)
  end)

  it("base, records, input, accountant, analysis and tracing know no LibTorch", function()
    local list = {}
    for _, folder in ipairs { "base", "records", "input", "tracing", "accountant", "analysis" } do
      for _, include in ipairs(includes("runtime/" .. folder)) do list[#list + 1] = include end
    end
    expect_none(list, function(include) return matches_any(include.name, torch) end)
  end)

  it("records see only records and base of this project", function()
    expect_none(includes("runtime/records"), function(include)
      if matches_any(include.name, { "^runtime/records/", "^runtime/base/" }) then return false end
      return matches_any(include.name, own_folders)
    end)
  end)

  it("inside the runtime no arrow turns back", function()
    -- base < {records, input, core, accountant, analysis, tracing} < profile < comm < {models, data, sharding, weights} < {privacy, optim}
    -- < train
    -- < {checkpoint, experiment, generate, plan, verify, audit}. Folders of one level may see each other: data takes its shapes from
    -- models.
    local level = { base = 0, records = 1, core = 1, accountant = 1, analysis = 1, input = 1, tracing = 1, profile = 2, comm = 3,
      models = 4, data = 4,
      sharding = 4, weights = 4, privacy = 5, optim = 5, train = 6, checkpoint = 7, experiment = 7, generate = 7, plan = 7, verify = 7,
      audit = 7 }
    local launch_sees = { base = true, records = true, core = true, profile = true, comm = true, launch = true }
    expect_none(includes("runtime"), function(include)
      local from, to = include.file:match("^runtime/([^/]+)/"), include.name:match("^runtime/([^/]+)/")
      if not from or not to or matches_any(include.name, descriptors) then return false end
      if from == "launch" then return not launch_sees[to] end
      if to == "launch" then return "launch is above all of the runtime" end
      if not level[from] or not level[to] then return "the spec knows no level of " .. (level[from] and to or from) end
      return level[to] > level[from]
    end)
  end)

  it("models know nothing of other ranks", function()
    expect_none(includes("runtime/models"), function(include) return include.name:match("^runtime/comm/") ~= nil end)
  end)

  it("launcher and watchdog know no LibTorch", function()
    local list = {}
    for _, folder in ipairs { "runtime/comm", "runtime/launch" } do
      for _, include in ipairs(includes(folder)) do
        local watched = { "/watchdog%.", "/missing_ranks%.", "/pulse%.", "/board%.", "/rank_environment%.", "/ranks%.", "/process%." }
        if matches_any(include.file, watched) then
          list[#list + 1] = include
        end
      end
    end
    assert.is_true(#list > 0)
    expect_none(list, function(include) return matches_any(include.name, torch) end)
  end)

  it("models know nothing of sharding or privacy", function()
    expect_none(includes("runtime/models"), function(include)
      return matches_any(include.name, { "sharding", "privacy", "^runtime/optim/", "^runtime/train/" })
    end)
  end)

  it("the reference that engines are compared with sees of privacy only the options of clipping", function()
    local list = {}
    for _, include in ipairs(includes("runtime/verify")) do
      if include.file:match("/reference%.") then list[#list + 1] = include end
    end
    assert.is_true(#list > 0)
    expect_none(list, function(include)
      return matches_any(include.name, { "^runtime/privacy/", "^runtime/train/" }) and include.name ~= "runtime/privacy/clipping.h"
        and include.name ~= "runtime/privacy/clip_groups.h"
    end)
  end)

  it("deliberate mistakes are made by the verbs verify and audit alone", function()
    local list = {}
    for _, folder in ipairs { "runtime", "bindings", "kernels", "viewer" } do
      for _, include in ipairs(includes(folder)) do list[#list + 1] = include end
    end
    expect_none(list, function(include)
      if include.name ~= "runtime/verify/faults.h" then return false end
      return not matches_any(include.file, { "^runtime/verify/faults%.cpp$", "^bindings/host/verify_command%.cpp$" })
    end)
    -- They come in through one hook; nothing else in the product derives from it or names a mistake.
    for _, path in ipairs(files("runtime bindings", cpp_names)) do
      local text = table.concat(lines_of(path), "\n")
      if not path:match("^runtime/verify/faults%.") then
        assert.is_nil(text:match("public%s+[%w_:]*StepHooks"), path)
        assert.is_nil(text:match("Fault::"), path)
      end
    end
  end)

  it("descriptors know no LibTorch, and see only base and each other", function()
    local list = {}
    for _, folder in ipairs { "runtime/experiment", "runtime/models", "runtime/optim", "runtime/privacy", "runtime/profile",
      "runtime/sharding", "runtime/train", "runtime/comm" } do
      for _, include in ipairs(includes(folder)) do
        if matches_any(include.file, descriptors) then list[#list + 1] = include end
      end
    end
    assert.is_true(#list > 20)
    expect_none(list, function(include)
      if matches_any(include.name, torch) then return true end
      return include.quoted and not include.name:match("^runtime/base/") and not matches_any(include.name, descriptors)
    end)
  end)

  it("bindings see the runtime, sol2, LuaJIT and themselves, not the viewer, and no kernels", function()
    expect_none(includes("bindings"), function(include)
      return matches_any(include.name, { "^viewer/", "^kernels/" }) or matches_any(include.name, drawing)
    end)
  end)

  it("sol2 is included in one place", function()
    expect_none(includes("bindings"), function(include) return include.name:match("^sol/") ~= nil and include.file ~= "bindings/sol.h" end)
  end)

  it("the viewer sees the runtime's torch-free libraries, itself and drawing libraries", function()
    expect_none(includes("viewer"), function(include)
      local ours = { "^viewer/", "^runtime/base/", "^runtime/records/", "^runtime/input/", "^runtime/tracing/", "^runtime/accountant/",
        "^runtime/analysis/", "^runtime/launch/child_process%.h$", "^runtime/launch/process%.h$" }
      if matches_any(include.name, ours) or matches_any(include.name, descriptors) then return false end
      if matches_any(include.name, own_folders) then return true end
      if matches_any(include.name, torch) or matches_any(include.name, lua) then return true end
      if matches_any(include.name, drawing) or include.name:match("^CLI/") or include.name:match("^fmt/") then return false end
      -- The C and C++ libraries and the system's own headers remain.
      return not matches_any(include.name, { "^[%a_]+$", "^[%a_]+%.h$", "^sys/", "^linux/", "^nlohmann/" })
    end)
  end)

  it("includes of our own are written from the root and exist", function()
    for _, folder in ipairs { "runtime", "bindings", "kernels", "viewer" } do
      expect_none(includes(folder), function(include)
        local made = { "^imgui", "^implot", "^stb_", "^moonshard_build%.h$", "^moonshard_commit%.h$" }
        if not include.quoted or matches_any(include.name, made) then return false end
        local file = io.open(root .. include.name)
        if file then file:close() end
        return file == nil and "there is no such file"
      end)
    end
  end)
end)

describe("the Lua library", function()
  it("and the scripts require only moonshard and moonshard.*", function()
    local wrong = {}
    for _, path in ipairs(files("scripts", "-name '*.lua'")) do
      for number, line in ipairs(lines_of(path)) do
        local code = line:gsub("^%s*%-%-.*", "")
        for name in code:gmatch([=[require[%s,]*%(?%s*["']([^"']+)["']]=]) do
          local good = name == "moonshard" or name:match("^moonshard%.") or name == "ffi" or name == "jit"
          if not good then wrong[#wrong + 1] = ("%s:%d requires %s"):format(path, number, name) end
        end
      end
    end
    assert.are.same({}, wrong)
  end)

  it("does not know the scripts, and does not change where a host looks for modules", function()
    local wrong = {}
    for _, path in ipairs(files("scripts/moonshard", "-name '*.lua'")) do
      for number, line in ipairs(lines_of(path)) do
        local code = line:gsub("%-%-.*", "")
        if code:find("package%.c?path") or code:find("package%.loaders") or code:find("package%.preload") then
          wrong[#wrong + 1] = ("%s:%d: %s"):format(path, number, line)
        end
      end
    end
    assert.are.same({}, wrong)
  end)

  it("sets no globals", function()
    local wrong = {}
    for _, path in ipairs(files("scripts", "-name '*.lua'")) do
      local pipe = io.popen(("luajit -bl '%s' 2>/dev/null | grep GSET"):format(root .. path))
      for line in pipe:lines() do wrong[#wrong + 1] = path .. ": " .. line end
      pipe:close()
    end
    assert.are.same({}, wrong)
  end)
end)

describe("files", function()
  it("have at most 800 lines", function()
    local wrong = {}
    for _, folder in ipairs { "runtime", "bindings", "kernels", "viewer", "scripts", "tests", "examples" } do
      for _, path in ipairs(files(folder, cpp_names .. " -o -name '*.lua'")) do
        local count = #lines_of(path)
        local is_generated = path:find("scripts/meta/", 1, true) ~= nil
        if count > 800 and not is_generated then wrong[#wrong + 1] = ("%s has %d"):format(path, count) end
      end
    end
    assert.are.same({}, wrong)
  end)

  it("every folder of sources says in a README what lives there", function()
    local missing = {}
    for _, top in ipairs { "runtime", "bindings", "viewer", "scripts", "cmake" } do
      local pipe = io.popen(("cd '%s' && find %s -type d | sort"):format(root, top))
      for folder in pipe:lines() do
        local readme = io.open(root .. folder .. "/README.md")
        if readme then readme:close() elseif not folder:match("/families/%w+$") then missing[#missing + 1] = folder end
      end
      pipe:close()
    end
    assert.are.same({}, missing)
  end)

  -- No build sees the other processor's branch.
  it("instructions of one processor stand in a branch for it", function()
    local processors = {
      ARM = { condition = { "__aarch64__", "_ARM[^_%w]", "_ARM$" },
        words = { "<arm_", "[^%w_]v%l+[%l%d]*q?_[usfp]%d+", "[^%w_]__crc32c%l", "target%(\"%+" } },
      X86 = { condition = { "__x86_64__", "_X86[^_%w]", "_X86$" },
        words = { "<immintrin", "[^%w_]_mm%d*_", "[^%w_]__m%d+", "target%(\"s" } },
    }
    local wrong = {}
    for _, folder in ipairs { "runtime", "kernels" } do
      for _, path in ipairs(files(folder, cpp_names)) do
        local branches = {} -- conditions that hold, the innermost last
        for number, line in ipairs(lines_of(path)) do
          local directive, condition = line:match("^%s*#%s*(%l+)(.*)")
          if directive and directive:match("^if") then branches[#branches + 1] = condition
          elseif directive == "elif" or directive == "else" then branches[#branches] = condition
          elseif directive == "endif" then branches[#branches] = nil
          end
          for name, processor in pairs(processors) do
            local inside = matches_any(table.concat(branches, " "), processor.condition)
            if matches_any(" " .. line, processor.words) and not inside then
              wrong[#wrong + 1] = ("%s:%d: %s"):format(path, number, name)
            end
          end
        end
      end
    end
    assert.are.same({}, wrong)
  end)

  it("headers open with #pragma once", function()
    local wrong = {}
    for _, folder in ipairs { "runtime", "bindings", "kernels", "viewer" } do
      for _, path in ipairs(files(folder, "-name '*.h' -o -name '*.cuh'")) do
        if not table.concat(lines_of(path), "\n"):find("#pragma once", 1, true) then wrong[#wrong + 1] = path end
      end
    end
    assert.are.same({}, wrong)
  end)
end)
