#include "runtime/profile/trace_request.h"

#include <signal.h>

#include <atomic>
#include <cstdlib>

namespace moonshard::profile {
namespace {

std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes this");

void on_signal(int) {
  asked.store(true);
}

}  // namespace

void listen_for_trace_requests() {
  struct sigaction before {};
  if (sigaction(SIGUSR2, nullptr, &before) != 0) return;
  // Launchers start us with the signal ignored, until a handler is installed.
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = &on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
}

TraceRequest take_trace_request() {
  if (!asked.load(std::memory_order_relaxed) || !asked.exchange(false)) return {};
  const char* steps = std::getenv("MOONSHARD_TRACE_STEPS");
  const char* folder = std::getenv("MOONSHARD_TRACE_DIR");
  const int64_t count = steps != nullptr ? std::atoll(steps) : 2;
  return {count > 0 ? count : 2, folder != nullptr && *folder != '\0' ? folder : "."};
}

}  // namespace moonshard::profile
