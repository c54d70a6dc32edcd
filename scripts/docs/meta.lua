--- Prints scripts/meta/moonshard.lua: annotations for lua-language-server.
-- Run: moonshard run scripts/docs/meta.lua > scripts/meta/moonshard.lua
require "moonshard"
io.write(require("moonshard.reference.meta")())
