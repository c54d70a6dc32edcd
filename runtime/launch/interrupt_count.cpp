#include "runtime/launch/interrupt_count.h"

#include <signal.h>

#include <atomic>
#include <iterator>

namespace moonshard::launch {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction before[std::size(kSignals)];
int depth = 0;
std::atomic<int> presses{0}, last_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes this");

void on_signal(int signal) {
  last_signal.store(signal);
  presses.fetch_add(signal == SIGINT ? 1 : 2);
}

}  // namespace

void begin_counting_interrupts() {
  if (depth++ > 0) return;
  presses.store(0);
  last_signal.store(0);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action {};
    action.sa_handler = &on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

void end_counting_interrupts() {
  if (depth == 0 || --depth > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

int num_interrupts() noexcept {
  return presses.load();
}

void repeat_interrupt() {
  if (const int signal = last_signal.exchange(0)) ::raise(signal);
}

}  // namespace moonshard::launch
