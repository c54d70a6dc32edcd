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

/// A change of options, and of the number of ranks where that is above 0.
struct ProposedChange {
  records::Saving saving;
  Json options = Json::object();
  double ranks = 0;
};

/// All changes that may save something, whatever it is. Each is computed for itself, from what was
/// held at one moment: another may then be the peak. Who can predict asks again
/// (plan/verified_savings.h).
std::vector<ProposedChange> proposed_changes(const HeldMemory& held);
/// Changes that save at least a hundredth of what was held, the largest first. Each is computed for
/// itself: two together save less than their sum. What a change of the micro-batch, of
/// checkpointing or of the length saves is a lower bound, as the step had not come to its end.
std::vector<records::Saving> memory_savings(const HeldMemory& held);

}  // namespace moonshard::analysis
