// Times the phases of a step. On the CPU by the monotonic clock; on a GPU by events on the compute
// stream, read once at the end of the step, so that timing does not serialise the work.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/profile/zone.h"

namespace moonshard::profile {

/// Phase names of the design, used alike in results, logs and traces.
/// "backward" has the norms in it; "second_backward" is that of ghost and flash.
/// "reduce" waits for gradients of other ranks, "norm_reduce" is norm_reduce = sum. "update" is
/// noise, division and optimizer of a private step in one pass, unit by unit between the sums;
/// where someone watches the gradients, and without privacy, "noise" and "optimizer" are phases
/// apart. "graph" is everything from forward to clipped sums of a step that is replayed (compile).
inline constexpr const char* kPhases[] = {
    "data",        "graph",           "forward", "backward", "norm_reduce", "clip_factors",
    "clipped_sum", "second_backward", "reduce",  "noise",    "optimizer",   "update"};

/// The phase that runs now, or what was said instead ("model"); for reports of what went wrong.
std::string current_phase();
void set_current_phase(const char* phase);

class PhaseTimer {
 public:
  explicit PhaseTimer(c10::Device device);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  /// Ends the running phase, if any, and begins this one.
  void begin(const char* phase);
  /// The time of another phase inside of the running one, which goes on after it. On any thread
  /// that the step waits for. Ranges of traces belong to their thread, and the ledger's phases
  /// follow each other: both are left alone.
  class Inside {
   public:
    Inside(PhaseTimer& timer, const char* phase);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    PhaseTimer& timer_;
    const char* outer_;
  };

  /// Ends the last phase; returns (phase, milliseconds) in order. A phase entered twice is summed.
  std::vector<std::pair<std::string, double>> finish();

 private:
  struct Mark;
  void mark(const char* phase);
  void enter(const char* phase);

  c10::Device device_;
  const char* running_ = nullptr;
  std::vector<std::unique_ptr<Mark>> marks_;
  Range range_;
};

}  // namespace moonshard::profile
