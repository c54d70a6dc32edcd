// Bytes by owner through a walk, and the moment at which they were most. Torch-free.
#pragma once

#include <algorithm>
#include <string>

#include "runtime/plan/memory_walk.h"

namespace moonshard::plan {

class MemoryLedger {
 public:
  double& of(Holder holder) { return now_[static_cast<size_t>(holder)]; }
  double of(Holder holder) const { return now_[static_cast<size_t>(holder)]; }

  void add(Holder holder, double bytes);
  void free(Holder holder, double bytes) {
    of(holder) -= bytes;
    lowest_ = std::min(lowest_, of(holder));
  }
  /// For a moment.
  void touch(Holder holder, double bytes) {
    add(holder, bytes);
    free(holder, bytes);
  }
  void begin_phase(const char* phase) { phase_ = phase; }

  double total() const;
  void leave_peak(MemoryPlan& plan) const {
    plan.peak = peak_;
    plan.at_peak = at_peak_;
    plan.phase = peak_phase_;
    plan.lowest = lowest_;
  }

 private:
  std::array<double, kHolders> now_{}, at_peak_{};
  double peak_ = 0, lowest_ = 0;
  const char *phase_ = "", *peak_phase_ = "";  ///< literals
};

}  // namespace moonshard::plan
