// Lua literals, for scripts that are copied out of the viewer.
#pragma once

#include <string>
#include <string_view>

namespace moonshard::viewer {

/// A string literal: printable characters stay, others become numeric escapes.
std::string lua_text(std::string_view text);

}  // namespace moonshard::viewer
