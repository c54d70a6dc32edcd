// moonshard repl --json: the prompt for programs (the notebook kernel, editors). One JSON object
// per line in both directions.
//
// Requests:  {"id": 1, "code": TEXT}         run an entry
//            {"id": 2, "complete": TEXT}     candidates for the text before the cursor
//            {"id": 3, "inspect": TEXT}      help on the expression that the text ends with
//            {"id": 4, "is_complete": TEXT}  whether an entry can be run as it is
// Answers:   {"id": 1, "stream": "stdout", "text": TEXT}, as the code prints, then one object with
//            the id and "status": "ok", "error", "interrupted" or "exit". See
//            scripts/moonshard/repl/protocol.lua for what else it holds.
// SIGINT stops the code that runs; the end of the input ends the program.
#pragma once

#include <lua.hpp>

#include "bindings/host/repl.h"

namespace moonshard::host {

/// Serves until the input ends or an entry asks to leave. Returns the exit code.
int serve_repl(lua_State* L, const ReplOptions& options);

}  // namespace moonshard::host
