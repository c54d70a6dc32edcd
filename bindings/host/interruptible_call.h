// Calls into Lua that Ctrl-C can stop. While such a call runs, SIGINT arms a Lua hook that raises
// "interrupted" and sets the runtime's interrupt flag for long native work; at all other times the
// signal has the meaning it had before.
#pragma once

#include <lua.hpp>

namespace moonshard::host {

/// Pops the error handler's function info(value, boundary) and pushes call(fn, ...), which returns
/// true and fn's results, or false, what info returned, and whether Ctrl-C had been pressed.
void push_interruptible_call(lua_State* L);

/// Whether Ctrl-C was pressed during the latest call.
bool last_call_was_interrupted() noexcept;

}  // namespace moonshard::host
