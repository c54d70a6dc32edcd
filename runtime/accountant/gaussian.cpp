#include "runtime/accountant/gaussian.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/base/check.h"

namespace moonshard::accountant {

void check_phases(const char* where, const std::vector<GaussianPhase>& phases, double delta) {
  MS_CHECK(delta > 0 && delta < 1,
           "{}: expected delta above 0 and below 1, got {}; 1 / samples or less is usual", where,
           delta);
  for (size_t i = 0; i < phases.size(); ++i) {
    const GaussianPhase& phase = phases[i];
    MS_CHECK(phase.q >= 0 && phase.q <= 1,
             "{}: phase {}: expected a sampling rate q from 0 to 1, got {}; it is batch size over "
             "samples",
             where, i + 1, phase.q);
    MS_CHECK(phase.sigma >= 0 && std::isfinite(phase.sigma),
             "{}: phase {}: expected a finite noise multiplier sigma of at least 0, got {}", where,
             i + 1, phase.sigma);
    MS_CHECK(phase.steps >= 0 && std::isfinite(phase.steps),
             "{}: phase {}: expected a finite number of steps of at least 0, got {}", where, i + 1,
             phase.steps);
    MS_CHECK(std::floor(phase.steps) == phase.steps,
             "{}: phase {}: expected a whole number of steps, got {}", where, i + 1, phase.steps);
  }
}

std::vector<GaussianPhase> merged(const std::vector<GaussianPhase>& phases) {
  std::vector<GaussianPhase> list;
  for (const GaussianPhase& phase : phases) {
    if (phase.steps > 0 && phase.q > 0) list.push_back(phase);
  }
  std::stable_sort(list.begin(), list.end(), [](const GaussianPhase& a, const GaussianPhase& b) {
    return a.q != b.q ? a.q < b.q : a.sigma < b.sigma;
  });
  size_t kept = 0;
  for (size_t i = 1; i < list.size(); ++i) {
    if (list[kept].q == list[i].q && list[kept].sigma == list[i].sigma) {
      list[kept].steps += list[i].steps;
    } else {
      list[++kept] = list[i];
    }
  }
  if (!list.empty()) list.resize(kept + 1);
  return list;
}

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
