// The text of the error that a call ends with.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/errors.h"

namespace moonshard {

/// Empty where it ends without one.
inline std::string text_of_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace moonshard
