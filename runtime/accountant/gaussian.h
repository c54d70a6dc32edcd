// The Gaussian mechanism in closed form, and the central limit of many subsampled ones.
//   Balle, Wang: Improving the Gaussian Mechanism for Differential Privacy (2018), theorem 8
//   Bu, Dong, Long, Su: Deep Learning with Gaussian Differential Privacy (2020), theorem 5
#pragma once

#include <limits>

#include <vector>

#include "runtime/accountant/gaussian_phase.h"

namespace moonshard::accountant {

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
