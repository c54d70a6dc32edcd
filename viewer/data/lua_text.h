// Lua literals, for scripts that are copied out of the viewer.
#pragma once

#include <string>
#include <string_view>

namespace moonshard::viewer {

/// A string literal: what Lua reads as it stands stays, the rest goes by its number.
std::string lua_text(std::string_view text);

}  // namespace moonshard::viewer
