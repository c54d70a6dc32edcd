// The input of all accountants: phases of steps, each the Poisson-subsampled Gaussian mechanism
// with one sampling rate and one noise multiplier.
#pragma once

#include <vector>

namespace moonshard::accountant {

struct GaussianPhase {
  double q = 0;      ///< chance of each sample to be in a step's batch, 0 to 1
  double sigma = 0;  ///< noise multiplier: standard deviation of the noise over the clipping bound
  double steps = 0;  ///< how many steps of this kind, a whole number
};

/// Throws UsageError for invalid numbers; `where` is the message's prefix.
void check_phases(const char* where, const std::vector<GaussianPhase>& phases, double delta);

/// Equivalent, with fewer phases: order does not matter, equal phases are merged, and phases
/// without cost are dropped.
std::vector<GaussianPhase> merged(const std::vector<GaussianPhase>& phases);

}  // namespace moonshard::accountant
