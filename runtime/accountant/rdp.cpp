#include "runtime/accountant/rdp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "runtime/accountant/gaussian.h"
#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

// log(erfc(x)) also where erfc itself is below the smallest double.
double log_erfc(double x) {
  if (x < 25) return std::log(std::erfc(x));
  const double r = 1 / (2 * x * x);
  return -x * x - std::log(x * std::sqrt(std::numbers::pi)) +
         std::log1p(r * (-1 + r * (3 - 15 * r)));
}

double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == -kInfinity || high == kInfinity ? high : high + std::log1p(std::exp(low - high));
}

// log(exp(x) - 1) without loss at either end, x > 0.
double log_expm1(double x) {
  return x > 30 ? x + std::log1p(-std::exp(-x)) : std::log(std::expm1(x));
}

// Whole orders. Without the factor exp((k^2 - k) / (2 sigma^2)) the terms add up to 1, so that
// A - 1 is a sum of positive terms: exact to the last digits also where A is 1 + 1e-12.
double log_moment_whole(double q, double sigma, int64_t order) {
  double log_rest = -kInfinity;  // log(A - 1)
  double log_binomial = 0;
  for (int64_t k = 1; k <= order; ++k) {
    log_binomial += std::log(static_cast<double>(order - k + 1) / static_cast<double>(k));
    if (k == 1) continue;
    const double kd = static_cast<double>(k);
    const double gain = (kd * kd - kd) / (2 * sigma * sigma);
    log_rest =
        log_add(log_rest, log_binomial + kd * std::log(q) +
                              static_cast<double>(order - k) * std::log1p(-q) + log_expm1(gain));
  }
  return log_rest > 700 ? log_rest : std::log1p(std::exp(log_rest));
}

// Real orders where the series below hardly converges, or rounds an A near 1 off: the integral
// itself, by the trapezoidal rule, which is exact to rounding once steps are short against the
// distance of the nearest complex zero of the density, pi sigma^2, and against sigma. With y the
// mixture's density over the plain one, less 1, the mean of y is 0: without it all terms are
// positive.
double log_moment_integral(double q, double sigma, double order) {
  constexpr double kReach = 12;  // in sigma
  const double step = std::min(0.5 * sigma * sigma, 0.5 * sigma);
  const double from = -kReach * sigma, to = order + kReach * sigma;
  constexpr double kLarge = 600;  // log of a power beside which the other terms are nothing
  double rest = 0, log_large = -kInfinity;  // both together: A - 1
  for (double x = from; x < to; x += step) {
    const double y = q * std::expm1((2 * x - 1) / (2 * sigma * sigma));
    const double log_power = order * std::log1p(y), log_density = -x * x / (2 * sigma * sigma);
    if (log_power > kLarge) {  // with little noise beyond the largest double
      log_large = log_add(log_large, log_power + log_density);
    } else {
      rest += std::exp(log_density) * (std::expm1(log_power) - order * y);
    }
  }
  const double scale = step / (sigma * std::sqrt(2 * std::numbers::pi));
  return log_add(std::log1p(rest * scale), log_large + std::log(scale));
}

// Real orders: the integral split at z0, each half a binomial series. Terms alternate in sign
// beyond the order; the sum ends when the next terms are negligible. Empty when double precision
// does not suffice.
std::optional<double> log_moment_real(double q, double sigma, double order) {
  constexpr int64_t kMostTerms = 1'000'000;
  constexpr double kNegligible = -36;  // log of a share of A, which is at least 1
  constexpr double kRounding = 1e-9;   // least log(A) of which a rounding of A is a small share
  const double z0 = sigma * sigma * (std::log1p(-q) - std::log(q)) + 0.5;
  const double width = std::numbers::sqrt2 * sigma;
  double log_positive = -kInfinity, log_negative = -kInfinity;
  double log_binomial = 0;
  bool negative = false;
  for (int64_t i = 0; i < kMostTerms; ++i) {
    const double id = static_cast<double>(i), j = order - id;
    const double low = log_binomial + id * std::log(q) + j * std::log1p(-q) +
                       (id * id - id) / (2 * sigma * sigma) + log_erfc((id - z0) / width) -
                       std::numbers::ln2;
    const double high = log_binomial + j * std::log(q) + id * std::log1p(-q) +
                        (j * j - j) / (2 * sigma * sigma) + log_erfc((z0 - j) / width) -
                        std::numbers::ln2;
    double& sum = negative ? log_negative : log_positive;
    sum = log_add(sum, log_add(low, high));
    if (id > order && std::max(low, high) < std::max(0.0, log_positive) + kNegligible) {
      // Nearly equal sums leave no digits.
      if (!(log_negative < log_positive - 1e-6)) return std::nullopt;
      const double log_moment = log_positive + std::log1p(-std::exp(log_negative - log_positive));
      return log_moment > kRounding ? log_moment : log_moment_integral(q, sigma, order);
    }
    const double factor = (order - id) / (id + 1);
    negative = negative != (factor < 0);
    log_binomial += std::log(std::abs(factor));
  }
  return std::nullopt;
}

// There the integral is fast; elsewhere the series is better.
bool suits_integral(double q, double sigma, double order) {
  return q >= 1e-3 && sigma >= 0.25 && sigma <= 1e4 && order <= 16;
}

// Theorem 21 of Balle et al.; below it: when the divergence is that small, the total variation
// alone is at most delta (Bretagnolle and Huber).
double epsilon_at(double rdp, double order, double delta) {
  if (delta * delta + std::expm1(-rdp) > 0) return 0;
  const double epsilon =
      rdp + std::log1p(-1 / order) - (std::log(delta) + std::log(order)) / (order - 1);
  return std::max(0.0, epsilon);
}

}  // namespace

std::vector<double> default_orders() {
  std::vector<double> orders;
  for (int i = 1; i < 100; ++i) orders.push_back(1 + i / 10.0);
  for (int i = 12; i < 64; ++i) orders.push_back(i);
  // A small epsilon is found at orders of about log(1 / delta) / epsilon: without large ones the
  // bound would end near 0.2, and a smaller target would ask for absurd noise.
  for (int octave = 64; octave < 32768; octave *= 2)
    for (int quarter = 4; quarter < 8; ++quarter) orders.push_back(octave / 4 * quarter);
  return orders;
}

double rdp_of_step(double q, double sigma, double order) {
  check_phases("accountant.rdp", {{q, sigma, 1}}, 0.5);
  MS_CHECK(order > 1 && order <= 1e6,
           "accountant.rdp: expected orders above 1 and up to 1e6, got {}; default_orders() has "
           "usual ones",
           order);
  if (q == 0) return 0;
  if (sigma == 0) return kInfinity;
  const double unsampled = order / (2 * sigma * sigma);
  if (q == 1) return unsampled;
  const double below = std::floor(order), above = std::ceil(order);
  double log_moment = log_moment_whole(q, sigma, static_cast<int64_t>(above));
  if (below < above) {
    // The logarithm of the moment is convex in the order: the line between whole ones is above it.
    const double share = order - below;
    log_moment =
        share * log_moment + (1 - share) * log_moment_whole(q, sigma, static_cast<int64_t>(below));
    // Outside of these the series loses all precision, or does not end.
    if (suits_integral(q, sigma, order)) {
      log_moment = std::min(log_moment, log_moment_integral(q, sigma, order));
    } else if (sigma >= 0.01 && sigma <= 1e4) {
      log_moment = std::min(log_moment, log_moment_real(q, sigma, order).value_or(log_moment));
    }
  }
  return std::min(log_moment / (order - 1), unsampled);  // subsampling never costs privacy
}

RdpEpsilon rdp_epsilon(const std::vector<GaussianPhase>& phases, double delta,
                       const std::vector<double>& orders) {
  check_phases("accountant.rdp", phases, delta);
  MS_CHECK(!orders.empty(), "accountant.rdp: expected at least one order, got none");
  RdpEpsilon best{kInfinity, orders.front()};
  double last_order = 0, last_rdp = 0;
  for (const double order : orders) {
    // Renyi divergence grows with the order: one that could not win even with the last one's is not
    // computed. Large orders, which cost most, are needed for small epsilons alone.
    if (order > last_order && last_order > 0 && epsilon_at(last_rdp, order, delta) >= best.epsilon)
      continue;
    double rdp = 0;
    for (const GaussianPhase& phase : phases) {
      if (phase.steps > 0) rdp += phase.steps * rdp_of_step(phase.q, phase.sigma, order);
    }
    last_order = order;
    last_rdp = rdp;
    const double epsilon = epsilon_at(rdp, order, delta);
    if (epsilon < best.epsilon) best = {epsilon, order};
  }
  return best;
}

}  // namespace moonshard::accountant
