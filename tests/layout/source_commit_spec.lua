--- Which commit records and `moonshard --version` name: the one that was built, by cmake/source_commit.cmake.
local root = debug.getinfo(1, "S").source:sub(2):match "^(.*)tests/layout/source_commit_spec%.lua$"
if root == "" then root = "./" end

local folder

local function shell(text, ...)
  local pipe = assert(io.popen(text:format(...) .. " 2>&1", "r"))
  local said = pipe:read "*a"
  pipe:close()
  return (said:gsub("%s+$", ""))
end

--- What the header says of `sources`, a folder with the script and whatever git knows of it.
local function commit_of(sources)
  shell("cmake -DSOURCE='%s' -DOUT='%s/commit.h' -P '%s/cmake/source_commit.cmake'", sources, folder, sources)
  local file = assert(io.open(folder .. "/commit.h"))
  local text = file:read "*a"
  file:close()
  return text:match '^#define MOONSHARD_COMMIT "([^"]*)"\n$'
end

local function git(sources, words) return shell("git -C '%s' -c user.name=n -c user.email=e %s", sources, words) end

describe("the commit that was built", function()
  local sources

  before_each(function()
    folder = shell "mktemp -d"
    sources = folder .. "/sources"
    shell("mkdir -p '%s/cmake' && cp '%s'cmake/source_commit.* '%s/cmake/'", sources, root, sources)
    shell("cp '%s'.gitattributes '%s/'", root, sources)
  end)
  after_each(function() shell("rm -rf '%s'", folder) end)

  it("is git's, and a + says that files differ from it", function()
    git(sources, "init -q")
    git(sources, "add -A")
    git(sources, "commit -qm one")
    local one = git(sources, "rev-parse --short HEAD")
    assert.are.equal(one, commit_of(sources))
    shell("echo more >'%s/new.txt'", sources)
    assert.are.equal(one .. "+", commit_of(sources))
    git(sources, "add -A")
    git(sources, "commit -qm two")
    local two = git(sources, "rev-parse --short HEAD")
    assert.are_not.equal(one, two)
    assert.are.equal(two, commit_of(sources))
  end)

  it("travels with an archive, also inside of somebody else's repository", function()
    git(sources, "init -q")
    git(sources, "add -A")
    git(sources, "commit -qm one")
    local one = git(sources, "rev-parse --short HEAD")
    local other = folder .. "/other"
    shell("mkdir -p '%s/unpacked' && git -C '%s' archive HEAD | tar x -C '%s/unpacked'", other, sources, other)
    assert.are.equal(one, commit_of(other .. "/unpacked"))
    git(other, "init -q")
    git(other, "add -A")
    git(other, "commit -qm theirs")
    assert.are.equal(one, commit_of(other .. "/unpacked"))
  end)

  it("is unknown where nothing says it, and the header is written only when it changes", function()
    assert.are.equal("unknown", commit_of(sources))
    shell("touch -d 2001-01-01 '%s/commit.h'", folder)
    local before = shell("stat -c %%Y '%s/commit.h'", folder)
    assert.are.equal("unknown", commit_of(sources))
    assert.are.equal(before, shell("stat -c %%Y '%s/commit.h'", folder))
  end)
end)
