--- Prints docs/reference.md: every function, method, field and option of the module.
-- Run: moonshard run scripts/docs/reference.lua > docs/reference.md
require "moonshard"
io.write(require("moonshard.reference.page")())
