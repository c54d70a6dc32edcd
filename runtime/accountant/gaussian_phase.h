// What an accountant is told: phases of steps, each the Poisson-subsampled Gaussian mechanism with
// one sampling rate and one noise multiplier. Every accountant of this folder takes the same.
#pragma once

#include <vector>

namespace moonshard::accountant {

struct GaussianPhase {
  double q = 0;      ///< chance of each sample to be in a step's batch, 0 to 1
  double sigma = 0;  ///< noise multiplier: standard deviation of the noise over the clipping bound
  double steps = 0;  ///< how many steps of this kind, a whole number
};

/// Throws UsageError for numbers that no schedule has; `where` opens the message.
void check_phases(const char* where, const std::vector<GaussianPhase>& phases, double delta);

/// The same cost in fewer phases: order plays no part, equal kinds are joined, and steps that see
/// nothing fall out.
std::vector<GaussianPhase> merged(const std::vector<GaussianPhase>& phases);

}  // namespace moonshard::accountant
