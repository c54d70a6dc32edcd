#include "runtime/core/memory_errors.h"

#include <new>

#include <c10/util/Exception.h>

#include "runtime/base/check.h"

namespace moonshard {

std::string out_of_memory_message(const std::exception& error) {
  constexpr const char* kAdvice = "lower batch_size or seq_length, or make smaller tensors";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return fmt::format("memory: the host has none left; {}", kAdvice);
  }
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  if (torch_error == nullptr) return "";
  std::string text = torch_error->what_without_backtrace();
  // The CPU allocator has no error type, only this message.
  const bool is_host = text.find("not enough memory") != std::string::npos ||
                       text.find("can't allocate memory") != std::string::npos;
  if (!is_host && dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) return "";
  const size_t start = text.find("you tried to allocate");
  if (start != std::string::npos) text = text.substr(start);
  // The figures come first; the rest is LibTorch's general advice.
  const size_t advice = text.find(" Including non-PyTorch memory");
  if (advice != std::string::npos) text.resize(advice);
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return fmt::format("memory: {}; {}", text, kAdvice);
}

void rethrow_memory_errors() {
  try {
    throw;
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = out_of_memory_message(error);
    if (message.empty()) throw;
    throw OutOfMemoryError(message, -1);
  }
}

}  // namespace moonshard
