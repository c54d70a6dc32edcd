#include "runtime/core/memory_errors.h"

#include <new>

#include <c10/util/Exception.h>

#include "runtime/core/check.h"

namespace moonshard {

void rethrow_memory_errors() {
  constexpr const char* kAdvice = "lower batch_size or seq_length";
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw OutOfMemoryError(fmt::format("memory: {}; {}", error.what_without_backtrace(), kAdvice),
                           -1);
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError(fmt::format("memory: the host has none left; {}", kAdvice), -1);
  } catch (const c10::Error& error) {
    // The CPU allocator has no error type of its own, only these words.
    const std::string text = error.what_without_backtrace();
    if (text.find("not enough memory") == std::string::npos &&
        text.find("can't allocate memory") == std::string::npos) {
      throw;
    }
    throw OutOfMemoryError(fmt::format("memory: {}; {}", text, kAdvice), -1);
  }
}

}  // namespace moonshard
