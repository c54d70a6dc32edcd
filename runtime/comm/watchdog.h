// Watches the collectives of one process. Every collective has a number; all ranks must call the
// same ones in the same order. When one fails or takes too long, the watchdog reads from the board
// what the other ranks were doing and reports which rank is missing, in which collective. Needs no
// LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/comm/pulse.h"

namespace moonshard::comm {

struct WatchdogOptions {
  int rank = 0, world = 1;
  double timeout_s = 300;
  double interval_s = 0.5;  ///< between heartbeats
  /// Called on the watchdog's thread with the report when a collective has timed out, or when
  /// another rank has failed and this one would wait for ever. Default: prints to stderr and ends
  /// the process with code 1, without waiting for a device that no longer answers.
  std::function<void(const std::string& report)> on_fatal;
  /// By default's way, between printing and ending.
  std::function<void()> before_end = {};
};

class Watchdog {
 public:
  Watchdog(std::shared_ptr<Board> board, WatchdogOptions options);
  /// Posts that this rank has finished in good order.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// A collective begins. `is_done` is polled on the watchdog's thread about ten times a second
  /// until it returns true, then dropped: it must be quick, must not throw and must not keep
  /// tensors alive. Costs a lock and two allocations. Returns the collective's number, from 1.
  int64_t begin(const std::string& operation, const std::string& about,
                std::function<bool()> is_done);
  /// The collective is known to be done: drops `is_done` at once. Optional.
  void end(int64_t sequence);
  /// After a collective threw `error`: posts this rank's failure, waits (at most 3 s) for the other
  /// ranks' final pulses and returns the report: the error, the collective and its number, which
  /// rank is missing and what it did last. A number that was never begun gives the error back.
  std::string explain(int64_t sequence, const std::string& error);
  /// This process is about to end with an error of its own: the others need not wait for it. Does
  /// nothing after explain, which has posted that already.
  void post_failure(const std::string& error);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads: one may be stuck in a dead board
};

}  // namespace moonshard::comm
