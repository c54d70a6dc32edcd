#include "runtime/base/interrupt.h"

#include <signal.h>

#include <atomic>

#include "runtime/base/check.h"

namespace moonshard {
namespace {

std::atomic<bool> requested{false};
std::atomic<int> holds{0};
std::atomic<bool> stop_asked{false}, stopped{false};
int stop_depth = 0;
struct sigaction before_stop;

void on_stop(int) {
  stop_asked.store(true, std::memory_order_relaxed);
}
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

StopSignals::StopSignals() {
  if (stop_depth++ > 0) return;
  struct sigaction action {};
  action.sa_handler = &on_stop;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGTERM, &action, &before_stop);
}

StopSignals::~StopSignals() {
  if (--stop_depth > 0) return;
  sigaction(SIGTERM, &before_stop, nullptr);
  stop_asked.store(false, std::memory_order_relaxed);  // whoever comes next was not asked
}

bool stop_requested() noexcept {
  return stop_asked.load(std::memory_order_relaxed);
}
void note_stopped() noexcept {
  stopped.store(true, std::memory_order_relaxed);
}
bool was_stopped() noexcept {
  return stopped.load(std::memory_order_relaxed);
}

InterruptHold::InterruptHold() noexcept {
  holds.fetch_add(1, std::memory_order_relaxed);
}
InterruptHold::~InterruptHold() {
  holds.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace moonshard
