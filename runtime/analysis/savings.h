// After memory ran out: what a change of options would have saved of what was held at that moment,
// computed from its breakdown by owner.
#pragma once

#include <vector>

#include "runtime/records/schema.h"

namespace moonshard::analysis {

/// What is known of the moment. Owners that the breakdown lacks held nothing.
struct HeldMemory {
  Json options;  ///< effective options of the experiment
  std::vector<records::OwnedBytes> owners;
  double ranks = 1;
};

/// Changes that save at least a hundredth of what was held, the largest first. Each is computed for
/// itself: two together save less than their sum. What a change of the micro-batch, of
/// checkpointing or of the length saves is a lower bound, as the step had not come to its end.
std::vector<records::Saving> memory_savings(const HeldMemory& held);

}  // namespace moonshard::analysis
