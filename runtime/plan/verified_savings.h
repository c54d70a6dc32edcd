// What changes of options save of a predicted peak: each is predicted again, as another moment may
// be the peak once an owner has less.
#pragma once

#include <vector>

#include "runtime/plan/prediction.h"
#include "runtime/records/schema.h"

namespace moonshard::plan {

/// Those that save at least a hundredth of the peak, the largest first. On a CPU no other number of
/// ranks is proposed: they would share its memory.
std::vector<records::Saving> verified_savings(const experiment::ExperimentOptions& options,
                                              const Prediction& prediction, const Cluster& cluster);

}  // namespace moonshard::plan
