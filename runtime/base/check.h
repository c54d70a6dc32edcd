// Checks that throw an error with a formatted text; the error types alone are in errors.h.
#pragma once

#include <string>

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace moonshard {

[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition,
                                       const std::string& detail);

}  // namespace moonshard

/// The caller's mistake: MS_CHECK(n > 0, "model: expected num_layers > 0, got {}; raise it", n).
#define MS_CHECK(condition, ...)                                 \
  do {                                                           \
    if (!(condition)) {                                          \
      throw ::moonshard::UsageError(::fmt::format(__VA_ARGS__)); \
    }                                                            \
  } while (false)

/// Our bug: an invariant of this code does not hold. The text says which values broke it.
#define MS_ASSERT(condition, ...)                                       \
  do {                                                                  \
    if (!(condition)) {                                                 \
      ::moonshard::throw_internal_error(__FILE__, __LINE__, #condition, \
                                        ::fmt::format(__VA_ARGS__));    \
    }                                                                   \
  } while (false)
