--- Figures at the prompt: what counts as one, and how it comes onto the terminal.
local figures = require "moonshard.repl.figures"
local repl = require "moonshard.repl"

-- A session on a terminal, whose output is collected; the module is a stand-in.
local function new_session()
  package.loaded.moonshard = { version = "0" }
  local written = { out = "", err = "" }
  local session = repl.new {
    is_terminal = function() return true end,
    out = function(text) written.out = written.out .. text end,
    err = function(text) written.err = written.err .. text end,
  }
  return session, written
end

describe("figures", function()
  local session, written, path
  local loaded = package.loaded.moonshard

  before_each(function()
    session, written = new_session()
    path = os.tmpname() .. ".png"
    local file = assert(io.open(path, "wb"))
    file:write("not really a picture")
    file:close()
  end)
  after_each(function()
    os.remove(path)
    package.loaded.moonshard = loaded
  end)

  it("are values that name pictures which are there", function()
    assert.same({ { mime = "image/png", path = path } }, figures.of(path))
    assert.same({ { mime = "image/png", path = path } }, figures.of { path })
    for _, value in ipairs { "no such.png", { path, "no such.png" }, {}, 5, "x.txt" } do assert.same({}, figures.of(value)) end
  end)

  it("are drawn where the terminal says that it can", function()
    session.host.ask_terminal = function() return "\27_Gi=31;OK\27\\\27[?62;4c" end
    session:run(("%q"):format(path))
    assert.matches("\27_Ga=T,f=100,q=2,m=0;" .. figures.base64("not really a picture"):gsub("%p", "%%%0") .. "\27\\", written.out)
  end)

  it("as sixels where it knows these, and a damaged file is named", function()
    session.host.ask_terminal = function() return "\27[?62;4;22c" end
    session:run(("%q"):format(path))
    assert.matches("png: expected a PNG file, got something else", written.out)
  end)

  it("are named with a hint where it cannot, once; .open says what is missing", function()
    session.host.ask_terminal = function() return "\27[?1;2c" end
    session:run(("%q"):format(path))
    session:run(("%q"):format(path))
    local _, hints = written.out:gsub("%.open shows", "")
    assert.equal(1, hints)
    session:run(".open /no/such.png")
    assert.matches("%.open: expected a PNG, SVG or PDF file, got '/no/such.png'", written.err)
  end)

  it("stay text without a terminal", function()
    session.host.is_terminal = function() return false end
    session.host.ask_terminal = function() error("asked") end
    session:run(("%q"):format(path))
    assert.equal(("%q\n"):format(path), written.out)
  end)

  it("in kitty's protocol come in chunks that say whether more follow", function()
    local text = figures.kitty(("x"):rep(4000))
    local _, more = text:gsub("m=1;", "")
    local _, last = text:gsub("m=0;", "")
    assert.same({ 1, 1 }, { more, last })
    assert.equal("aGk=", figures.base64("hi"))
  end)

  it("become the pixels of the file", function()
    -- 2 x 1 pixels, red and blue: a stored block inside a zlib stream.
    local raw = "\0\255\0\0\0\0\255"
    local function chunk(kind, data) return ("\0\0\0%s%s%s\0\0\0\0"):format(string.char(#data), kind, data) end
    local file = "\137PNG\r\n\26\n" .. chunk("IHDR", "\0\0\0\2\0\0\0\1\8\2\0\0\0")
      .. chunk("IDAT", "\120\1\1\7\0\248\255" .. raw .. "\0\0\0\0") .. chunk("IEND", "")
    local picture = require("moonshard.repl.png").decode(file)
    assert.same({ 2, 1, 3, 255, 0, 255 }, { picture.width, picture.height, picture.channels, picture.pixels[0], picture.pixels[3],
      picture.pixels[5] })
    local sixels = require("moonshard.repl.sixel").of_png(file, 80)
    assert.matches("#5%?@%$#180@%?%-", sixels)
  end)
end)
