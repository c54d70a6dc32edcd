--- Prints docs/records.md: what each field of a result.json means.
-- Run: moonshard run scripts/docs/records.lua > docs/records.md
require "moonshard"
io.write(require("moonshard.record_fields").page())
