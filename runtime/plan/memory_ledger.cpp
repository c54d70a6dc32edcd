#include "runtime/plan/memory_ledger.h"

#include <numeric>

namespace moonshard::plan {

const char* holder_name(Holder holder) {
  static constexpr const char* kNames[kHolders] = {"parameters",    "gathered_parameters",
                                                   "gradients",     "optimizer_state",
                                                   "activations",   "output_gradients",
                                                   "engine_kept",   "engine_temporaries",
                                                   "communication", "data",
                                                   "rest"};
  return kNames[static_cast<size_t>(holder)];
}

void MemoryLedger::add(Holder holder, double bytes) {
  of(holder) += bytes;
  if (bytes <= 0) return;
  const double sum = total();
  if (sum <= peak_) return;
  peak_ = sum;
  at_peak_ = now_;
  peak_phase_ = phase_;
}

double MemoryLedger::total() const {
  return std::accumulate(now_.begin(), now_.end(), 0.0);
}

}  // namespace moonshard::plan
