// The Gaussian mechanism in closed form, and the central limit of many subsampled ones.
//   Balle, Wang: Improving the Gaussian Mechanism for Differential Privacy (2018), theorem 8
//   Bu, Dong, Long, Su: Deep Learning with Gaussian Differential Privacy (2020), theorem 5
#pragma once

#include <limits>
#include <vector>

namespace moonshard::accountant {

/// The input of all accountants: phases of steps, each the Poisson-subsampled Gaussian mechanism
/// with one sampling rate and one noise multiplier.
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

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// exp(x^2) erfc(x) for x >= 0, to full precision also where erfc is below the smallest double.
double scaled_erfc(double x);

/// log of the delta for which telling N(0, 1) from N(mu, 1) is (epsilon, delta)-private.
double gaussian_log_delta(double epsilon, double mu);

/// The least epsilon at that delta, from above to within rounding; infinite where mu is.
double gaussian_epsilon(double mu, double delta);

/// mu of all phases together when every one of them sees all samples: exact. Throws UsageError
/// for a phase with 0 < q < 1.
double exact_mu(const std::vector<GaussianPhase>& phases);

/// mu of the central limit under Poisson sampling: not a bound, neither from above nor below.
double central_limit_mu(const std::vector<GaussianPhase>& phases);

}  // namespace moonshard::accountant
