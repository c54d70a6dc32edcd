#include "runtime/accountant/gaussian.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {}  // namespace

double scaled_erfc(double x) {
  if (x < 20) return std::exp(x * x) * std::erfc(x);
  const double r = 1 / (2 * x * x);  // asymptotic series: the next term is below 1e-12 of the sum
  return (1 + r * (-1 + r * (3 + r * (-15 + r * 105)))) / (x * std::sqrt(std::numbers::pi));
}

double gaussian_log_delta(double epsilon, double mu) {
  if (mu <= 0) return -kInfinity;
  const double near = (epsilon / mu - mu / 2) / std::numbers::sqrt2;
  const double far = (epsilon / mu + mu / 2) / std::numbers::sqrt2;
  // exp(epsilon) times the second tail has the exponent of the first one: nothing overflows.
  if (near >= 0) {
    return -near * near + std::log((scaled_erfc(near) - scaled_erfc(far)) / 2);
  }
  return std::log((std::erfc(near) - std::exp(-near * near) * scaled_erfc(far)) / 2);
}

double gaussian_epsilon(double mu, double delta) {
  if (!std::isfinite(mu)) return kInfinity;
  const double target = std::log(delta);
  // At epsilon 0 delta is erf(mu / sqrt(8)).
  if (mu <= 0 || std::erf(mu / std::sqrt(8.0)) <= delta) return 0;
  double low = 0, high = std::max(mu * mu, mu);
  while (!(gaussian_log_delta(high, mu) <= target)) {
    low = high;
    high *= 2;
    if (!std::isfinite(high)) return kInfinity;
  }
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = low + (high - low) / 2;
    (gaussian_log_delta(middle, mu) <= target ? high : low) = middle;
  }
  return high;
}

double exact_mu(const std::vector<GaussianPhase>& phases) {
  double square = 0;
  for (size_t i = 0; i < phases.size(); ++i) {
    const GaussianPhase& phase = phases[i];
    if (phase.q == 0 || phase.steps == 0) continue;
    MS_CHECK(phase.q == 1,
             "accountant.gaussian: phase {}: expected q = 1 (every step sees every sample), got q "
             "= {}; take prv, pld or rdp for sampled batches",
             i + 1, phase.q);
    square += phase.sigma == 0 ? kInfinity : phase.steps / (phase.sigma * phase.sigma);
  }
  return std::sqrt(square);
}

double central_limit_mu(const std::vector<GaussianPhase>& phases) {
  double square = 0;
  for (const GaussianPhase& phase : phases) {
    if (phase.q == 0 || phase.steps == 0) continue;
    square += phase.sigma == 0
                  ? kInfinity
                  : phase.q * phase.q * phase.steps * std::expm1(1 / (phase.sigma * phase.sigma));
  }
  return std::sqrt(square);
}

}  // namespace moonshard::accountant
