#include "runtime/base/interrupt.h"

#include <atomic>

#include "runtime/base/check.h"

namespace moonshard {
namespace {

std::atomic<bool> requested{false};
std::atomic<int> holds{0};
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
  if (interrupt_requested() && holds.load(std::memory_order_relaxed) == 0) throw Interrupted();
}

InterruptHold::InterruptHold() noexcept {
  holds.fetch_add(1, std::memory_order_relaxed);
}
InterruptHold::~InterruptHold() {
  holds.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace moonshard
