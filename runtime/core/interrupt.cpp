#include "runtime/core/interrupt.h"

#include <atomic>

#include "runtime/core/check.h"

namespace moonshard {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes this");

}  // namespace

void request_interrupt() noexcept {
  requested.store(true, std::memory_order_relaxed);
}
bool interrupt_requested() noexcept {
  return requested.load(std::memory_order_relaxed);
}
void clear_interrupt() noexcept {
  requested.store(false, std::memory_order_relaxed);
}

void throw_if_interrupted() {
  if (interrupt_requested()) throw Interrupted();
}

}  // namespace moonshard
