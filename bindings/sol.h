// The one place that includes sol2, with all its safeties on in every build.
//
// Exceptions: sol2 would let C++ exceptions pass through LuaJIT's frames, where pcall turns them
// into the text "C++ exception". We have it catch std::exception in its trampolines instead
// (lua_error.h words the message), and not catch "...", because that is how LuaJIT's own errors
// travel through C++ frames.
#pragma once

#define SOL_ALL_SAFETIES_ON 1
#define SOL_LUAJIT 1
#define SOL_EXCEPTIONS_ALWAYS_UNSAFE 1
#define SOL_LUAJIT_USE_EXCEPTION_TRAMPOLINE 0
#define SOL_EXCEPTIONS_CATCH_ALL 0
#define SOL_PRINT_ERRORS 0

#include <sol/sol.hpp>
