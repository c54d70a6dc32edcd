#include "runtime/audit/bounds.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "runtime/accountant/gaussian.h"
#include "runtime/base/check.h"

namespace moonshard::audit {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// In units of a canary's own magnitude: near the middle, where the estimate of mu varies least.
constexpr double kGaussianThresholds[] = {0, 0.25, 0.5, 0.75, 1};
// A ratio of shares is largest in the tails.
constexpr double kFirstTail = -3, kTailStep = 0.5;
constexpr int kNumTails = 15;
constexpr double kGuessedShare = 0.1;  // of the canaries, at either end

double log_binomial_term(int64_t n, int64_t k, double p) {
  const double nd = static_cast<double>(n), kd = static_cast<double>(k);
  return std::lgamma(nd + 1) - std::lgamma(kd + 1) - std::lgamma(nd - kd + 1) + kd * std::log(p) +
         (nd - kd) * std::log1p(-p);
}

// P[X <= k], X binomial. Summed from k downwards, or from k + 1 upwards: terms fall geometrically
// on the side away from the middle, so that the sum ends when they no longer count.
double binomial_cdf(int64_t k, int64_t n, double p) {
  if (k >= n) return 1;
  if (k < 0) return 0;
  if (p <= 0) return 1;
  if (p >= 1) return 0;
  const double odds = p / (1 - p);
  const bool downwards = static_cast<double>(k) < static_cast<double>(n) * p;
  const int64_t first = downwards ? k : k + 1;
  double ratio = 1, sum = 0;  // in units of the first term
  for (int64_t i = first; i >= 0 && i <= n;) {
    sum += ratio;
    if (ratio < sum * 1e-17) break;
    if (downwards) {
      ratio *= static_cast<double>(i) / (static_cast<double>(n - i + 1) * odds);
      --i;
    } else {
      ratio *= static_cast<double>(n - i) * odds / static_cast<double>(i + 1);
      ++i;
    }
  }
  const double tail = std::exp(log_binomial_term(n, first, p)) * sum;
  return std::clamp(downwards ? tail : 1 - tail, 0.0, 1.0);
}

double normal_cdf(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2;
}

// Where `is_true` changes from true to false, between low and high: the lower end.
double last_true(double low, double high, const std::function<bool(double)>& is_true) {
  for (int i = 0; i < 100 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (is_true(middle) ? low : high) = middle;
  }
  return low;
}

// The x with P[normal > x] = p.
double normal_upper_quantile(double p) {
  if (p >= 1) return -kInfinity;
  if (p <= 0) return kInfinity;
  return last_true(-40, 40, [p](double x) { return normal_cdf(-x) > p; });
}

void check_levels(const char* where, double significance, double delta) {
  MS_CHECK(significance > 0 && significance < 1,
           "{}: expected a significance between 0 and 1, got {}", where, significance);
  MS_CHECK(delta >= 0 && delta < 1, "{}: expected delta from 0 to below 1, got {}", where, delta);
}

// How many of the sorted scores are below the threshold.
int64_t count_below(const std::vector<double>& sorted, double threshold) {
  return std::lower_bound(sorted.begin(), sorted.end(), threshold) - sorted.begin();
}

// Limits of both kinds of error at a threshold; a score at or above it is taken for "in".
struct ErrorLimits {
  double false_positive = 1, false_negative = 1;
};

class Sorted {
 public:
  explicit Sorted(const Scores& scores) : in_(scores.in), out_(scores.out) {
    for (std::vector<double>* list : {&in_, &out_}) {
      // NaN scores count as wrong guesses, which can only lower the bound.
      for (double& score : *list)
        if (std::isnan(score)) score = list == &in_ ? -kInfinity : kInfinity;
      std::sort(list->begin(), list->end());
    }
  }
  ErrorLimits limits(double threshold, double significance) const {
    const auto trials_in = static_cast<int64_t>(in_.size());
    const auto trials_out = static_cast<int64_t>(out_.size());
    return {binomial_upper_limit(trials_out - count_below(out_, threshold), trials_out,
                                 significance / 2),
            binomial_upper_limit(count_below(in_, threshold), trials_in, significance / 2)};
  }

 private:
  std::vector<double> in_, out_;
};

double log_ratio(double share, double delta, double false_share) {
  return share - delta > 0 ? std::log((share - delta) / false_share) : 0;
}

}  // namespace

double binomial_upper_limit(int64_t failed, int64_t trials, double significance) {
  MS_CHECK(failed >= 0 && failed <= trials,
           "audit: expected failures from 0 to the {} trials, got {}", trials, failed);
  if (failed >= trials) return 1;
  // The upper end of the bracket, so that rounding cannot make the limit too low.
  const double from_above = last_true(
      0, 1, [&](double miss) { return binomial_cdf(failed, trials, 1 - miss) < significance; });
  return 1 - from_above;
}

double one_run_p_value(int64_t canaries, int64_t guesses, int64_t correct, double epsilon,
                       double delta) {
  MS_CHECK(correct >= 0 && correct <= guesses && guesses <= canaries,
           "audit: expected right guesses <= guesses <= canaries, got {}, {} and {}", correct,
           guesses, canaries);
  const double p = 1 / (1 + std::exp(-epsilon));
  // With delta the distribution of right guesses may be moved by 2 delta m x alpha (theorem 5.2
  // there): the most that any window of i numbers just below `correct` holds, per number.
  const double beyond = 1 - binomial_cdf(correct - 1, guesses, p);
  double window = 0, alpha = 0;
  for (int64_t i = 1; i <= correct && p < 1; ++i) {
    window += std::exp(log_binomial_term(guesses, correct - i, p));
    alpha = std::max(alpha, window / static_cast<double>(i));
    if (window / static_cast<double>(i) < alpha / 2 && window > 1 - 1e-12) break;
  }
  return std::min(1.0, beyond + alpha * delta * 2 * static_cast<double>(canaries));
}

double one_run_epsilon(int64_t canaries, int64_t guesses, int64_t correct, double significance,
                       double delta) {
  check_levels("audit.one_run", significance, delta);
  const auto refutes = [&](double epsilon) {
    return one_run_p_value(canaries, guesses, correct, epsilon, delta) < significance;
  };
  if (guesses == 0 || !refutes(0)) return 0;
  double low = 0, high = 1;
  while (high < 1e3 && refutes(high)) {
    low = high;
    high *= 2;
  }
  return last_true(low, high, refutes);
}

double one_run_bound(const Scores& scores, double significance, double delta) {
  struct Canary {
    double score;
    bool is_in;
  };
  std::vector<Canary> all;
  for (const double score : scores.in) all.push_back({std::isnan(score) ? 0 : score, true});
  for (const double score : scores.out) all.push_back({std::isnan(score) ? 0 : score, false});
  // Ties are ordered against the adversary: excluded canaries come first at the top and last at the
  // bottom, which can only lower the count of right guesses.
  const auto half = static_cast<int64_t>(static_cast<double>(all.size()) * kGuessedShare);
  if (half == 0) return 0;
  const auto right = [&](bool top) {
    std::sort(all.begin(), all.end(), [top](const Canary& a, const Canary& b) {
      if (a.score != b.score) return top ? a.score > b.score : a.score < b.score;
      return top ? !a.is_in && b.is_in : a.is_in && !b.is_in;
    });
    return std::count_if(all.begin(), all.begin() + half,
                         [top](const Canary& canary) { return canary.is_in == top; });
  };
  const int64_t correct = right(true) + right(false);
  return one_run_epsilon(scores.size(), 2 * half, correct, significance, delta);
}

double gaussian_dp_bound(const Scores& scores, double significance, double delta) {
  check_levels("audit.gaussian_dp", significance, delta);
  const Sorted sorted(scores);
  double mu = 0;
  for (const double threshold : kGaussianThresholds) {
    const ErrorLimits limits =
        sorted.limits(threshold, significance / std::size(kGaussianThresholds));
    if (limits.false_positive >= 1 || limits.false_negative >= 1) continue;
    mu = std::max(mu, normal_upper_quantile(limits.false_positive) +
                          normal_upper_quantile(limits.false_negative));
  }
  return mu > 0 ? accountant::gaussian_epsilon(mu, delta) : 0;
}

double clopper_pearson_bound(const Scores& scores, double significance, double delta) {
  check_levels("audit.clopper_pearson", significance, delta);
  const Sorted sorted(scores);
  double epsilon = 0;
  for (int i = 0; i < kNumTails; ++i) {
    const ErrorLimits limits = sorted.limits(kFirstTail + kTailStep * i, significance / kNumTails);
    epsilon = std::max({epsilon, log_ratio(1 - limits.false_negative, delta, limits.false_positive),
                        log_ratio(1 - limits.false_positive, delta, limits.false_negative)});
  }
  return epsilon;
}

}  // namespace moonshard::audit
