#include "runtime/accountant/calibrate.h"

#include <algorithm>
#include <cmath>

#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

constexpr const char* kWhere = "accountant.calibrate";

// Evaluates epsilon of one phase, and of what is spent beside it, repeatedly. For rdp only orders
// near the best one so far are tried, which can only overestimate.
class Evaluator {
 public:
  Evaluator(const std::string& method, double delta, double target,
            std::vector<GaussianPhase> beside = {})
      : method_(method), delta_(delta), orders_(default_orders()), beside_(std::move(beside)) {
    check_method(kWhere, method);
    MS_CHECK(target > 0 && std::isfinite(target),
             "{}: expected a finite target epsilon above 0, got {}", kWhere, target);
  }

  double operator()(const GaussianPhase& phase) {
    if (method_ != "rdp") return whole(phase);
    for (;;) {
      const size_t from = best_ < kAround ? 0 : best_ - kAround;
      const size_t to = std::min(orders_.size(), best_ + kAround + 1);
      const std::vector<double> near(orders_.begin() + static_cast<std::ptrdiff_t>(from),
                                     orders_.begin() + static_cast<std::ptrdiff_t>(to));
      const RdpEpsilon found = rdp_epsilon(with(phase), delta_, near);
      const auto place =
          static_cast<size_t>(std::find(near.begin(), near.end(), found.best_order) - near.begin());
      const bool moves =
          (place == 0 && from > 0) || (place + 1 == near.size() && to < orders_.size());
      const size_t next = from + std::min(place, near.size() - 1);
      if (!moves || next == best_ || found.epsilon == 0) return found.epsilon;
      best_ = next;
    }
  }

  // The method at full accuracy: the answer's own epsilon.
  double whole(const GaussianPhase& phase) const {
    return epsilon_of(method_, with(phase), delta_).epsilon;
  }

  // The search's tolerance on epsilon: grids cost seconds, closed forms nothing.
  double tolerance(const CalibrateOptions& options, double target) const {
    MS_CHECK(options.epsilon_tolerance >= 0,
             "{}: option 'epsilon_tolerance': expected a number of at least 0, got {}", kWhere,
             options.epsilon_tolerance);
    if (options.epsilon_tolerance > 0) return options.epsilon_tolerance;
    if (method_ == "gaussian" || method_ == "gdp") return 1e-10 * target;
    return (method_ == "rdp" ? 1e-6 : 1e-4) * target;
  }

 private:
  std::vector<GaussianPhase> with(const GaussianPhase& phase) const {
    std::vector<GaussianPhase> all = beside_;
    all.push_back(phase);
    return all;
  }

  static constexpr size_t kAround = 2;
  std::string method_;
  double delta_;
  std::vector<double> orders_;
  std::vector<GaussianPhase> beside_;
  size_t best_ = 60;
};

struct SigmaEnd {
  double sigma, epsilon;
};

// The least sigma between `low`, at which epsilon is above the target, and `high`, at which it is
// not. For methods whose evaluation takes seconds: epsilon is nearly a power of sigma, so that a
// line through the logarithms of both ends finds it in a few.
double narrowed_sigma(Evaluator& evaluate, GaussianPhase phase, SigmaEnd low, SigmaEnd high,
                      double target, double tolerance) {
  while (target - high.epsilon > tolerance && high.sigma - low.sigma > 1e-14 * high.sigma) {
    double share =
        std::log(low.epsilon / (target - tolerance / 2)) / std::log(low.epsilon / high.epsilon);
    // Where the line says nothing, and never onto an end: the bracket must shrink from both sides.
    share = std::isfinite(share) ? std::clamp(share, 0.02, 0.98) : 0.5;
    phase.sigma = low.sigma * std::pow(high.sigma / low.sigma, share);
    const SigmaEnd middle{phase.sigma, evaluate(phase)};
    (middle.epsilon <= target ? high : low) = middle;
  }
  return high.sigma;
}

// The search may have used fewer orders or another grid: the answer is evaluated again.
void judge(const Evaluator& evaluate, const GaussianPhase& phase, double target) {
  const double epsilon = evaluate.whole(phase);
  MS_ASSERT(epsilon <= target, "q {} sigma {} steps {}: epsilon {} above the target {}", phase.q,
            phase.sigma, phase.steps, epsilon, target);
}

}  // namespace

double calibrate_sigma(const std::string& method, double q, double steps, double delta,
                       double target_epsilon, const CalibrateOptions& options) {
  check_phases(kWhere, {{q, 1, steps}}, delta);
  Evaluator evaluate(method, delta, target_epsilon, options.beside);
  const double tolerance = evaluate.tolerance(options, target_epsilon);
  if (q == 0 || steps == 0) return 0;  // no data is used
  if (method == "pld") {
    // Renyi's bound needs a little more noise, and is quick: the search starts there.
    double high = 20;
    try {
      high = calibrate_sigma("rdp", q, steps, delta, target_epsilon, {.beside = options.beside});
    } catch (const UsageError&) {
    }
    double reached = evaluate({q, high, steps});
    while (reached > target_epsilon && high <= kMostSigma)
      high *= 2, reached = evaluate({q, high, steps});
    double low = high / 2, above = evaluate({q, low, steps});
    while (above <= target_epsilon && low > 1e-3) {
      high = low, reached = above;
      low /= 2, above = evaluate({q, low, steps});
    }
    if (high <= kMostSigma) {
      high = narrowed_sigma(evaluate, {q, high, steps}, {low, above}, {high, reached},
                            target_epsilon, tolerance);
      judge(evaluate, {q, high, steps}, target_epsilon);
      return high;
    }
  }
  // Doubling from 20, then bisection: Opacus's search, so that answers can be compared.
  double low = 0, high = 10, reached = INFINITY;
  while (reached > target_epsilon) {
    high *= 2;
    reached = evaluate({q, high, steps});
    MS_CHECK(
        reached <= target_epsilon || high <= kMostSigma,
        "{}: expected a target epsilon that noise can reach, got {}; by {} the least is {:.4g} "
        "(sigma {:.3g}): take fewer steps, a smaller q or a larger delta",
        kWhere, target_epsilon, method, reached, high);
  }
  while (target_epsilon - reached > tolerance && high - low > 1e-14 * high) {
    const double middle = (low + high) / 2;
    const double epsilon = evaluate({q, middle, steps});
    if (epsilon < target_epsilon) {
      high = middle;
      reached = epsilon;
    } else {
      low = middle;
    }
  }
  judge(evaluate, {q, high, steps}, target_epsilon);
  return high;
}

double calibrate_steps(const std::string& method, double q, double sigma, double delta,
                       double target_epsilon) {
  check_phases(kWhere, {{q, sigma, 1}}, delta);
  Evaluator evaluate(method, delta, target_epsilon);
  const auto fits = [&](double steps) { return evaluate({q, sigma, steps}) <= target_epsilon; };
  MS_CHECK(fits(1),
           "{}: expected a target epsilon that one step can keep, got {}; by {} one step gives "
           "{:.4g}: take more noise, a smaller q or a larger delta",
           kWhere, target_epsilon, method, evaluate({q, sigma, 1}));
  // Grids never give more than rdp, and rdp is fast: the search starts there.
  double low = 1;
  if (method == "prv" || method == "pld") {
    try {
      low = calibrate_steps("rdp", q, sigma, delta, target_epsilon);
      if (!fits(low)) low = 1;
    } catch (const UsageError&) {
      low = 1;
    }
  }
  if (low >= kMostSteps) return kMostSteps;
  double high = low, stride = std::max(1.0, std::floor(low / 16));
  for (;;) {
    high = std::min(kMostSteps, low + stride);
    if (!fits(high)) break;
    low = high;
    if (low == kMostSteps) return low;
    stride *= 2;
  }
  while (high - low > 1) {
    const double middle = std::floor((low + high) / 2);
    (fits(middle) ? low : high) = middle;
  }
  judge(evaluate, {q, sigma, low}, target_epsilon);
  return low;
}

double calibrate_q(const std::string& method, double sigma, double steps, double delta,
                   double target_epsilon, const CalibrateOptions& options) {
  check_phases(kWhere, {{1, sigma, steps}}, delta);
  Evaluator evaluate(method, delta, target_epsilon);
  const double tolerance = evaluate.tolerance(options, target_epsilon);
  const double whole = evaluate({1, sigma, steps});
  if (whole <= target_epsilon) {
    judge(evaluate, {1, sigma, steps}, target_epsilon);
    return 1;
  }
  MS_CHECK(method != "gaussian",
           "{}: expected a target epsilon of at least {:.4g}, got {}; gaussian knows q = 1 alone, "
           "take prv, pld or rdp for sampled batches",
           kWhere, whole, target_epsilon);
  double low = kLeastRate, high = 1, reached = evaluate({low, sigma, steps});
  MS_CHECK(reached <= target_epsilon,
           "{}: expected a target epsilon that sampling can reach, got {}; by {} q = {:.0e} still "
           "gives {:.4g}: take more noise, fewer steps or a larger delta",
           kWhere, target_epsilon, method, low, reached);
  while (target_epsilon - reached > tolerance && high - low > 1e-13 * high) {
    const double middle = std::sqrt(low * high);  // rates differ by orders of magnitude
    const double epsilon = evaluate({middle, sigma, steps});
    if (epsilon <= target_epsilon) {
      low = middle;
      reached = epsilon;
    } else {
      high = middle;
    }
  }
  judge(evaluate, {low, sigma, steps}, target_epsilon);
  return low;
}

}  // namespace moonshard::accountant
