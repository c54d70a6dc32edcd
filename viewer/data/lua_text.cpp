#include "viewer/data/lua_text.h"

#include <fmt/format.h>

namespace moonshard::viewer {

std::string lua_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\{:03d}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace moonshard::viewer
