// From C++ exceptions to Lua errors, in one place.
#pragma once

#include <string>

#include "bindings/sol.h"

namespace moonshard::bindings {

/// Makes every std::exception that leaves a bound function a Lua error at the caller's line.
/// LibTorch's errors lose their C++ stack. The exception is gone before the Lua error is raised, so
/// that the jump skips no destructor.
void install_error_handler(lua_State* L);

/// Pushes "file:line: message" of the function that called the running one.
void push_error_text(lua_State* L, const std::exception& error);

/// An exception's message for users: without LibTorch's C++ backtrace.
std::string readable_message(const std::exception& error);

/// What an error's text says about memory: one of ours, also of another rank or of a record;
/// LuaJIT's own; or a script's, which begins with "memory: ".
enum class MemoryOutcome { Other, RanOut, CannotFit };
MemoryOutcome memory_outcome(const std::string& text);

/// Refuses byte code: LuaJIT does not verify it. Throws UsageError "where: …".
void refuse_byte_code(const std::string& chunk, const std::string& where);

/// Replaces load, loadstring, loadfile and dofile by versions that take source text only. For
/// our own programs; a host's own state is left as it is.
void allow_source_text_only(lua_State* L);

}  // namespace moonshard::bindings
