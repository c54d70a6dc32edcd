#include "runtime/base/check.h"

#include <cstring>

namespace moonshard {

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& detail) {
  const char* base = std::strrchr(file, '/');
  throw InternalError(fmt::format(
      "{}:{}: internal error: expected {}, got {}; please report this with the command line",
      base != nullptr ? base + 1 : file, line, condition, detail));
}

}  // namespace moonshard
