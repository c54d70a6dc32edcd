#include "runtime/analysis/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {
namespace {

// Lehmer's generator with the multiplier of minstd.
class Draw {
 public:
  size_t below(size_t count) {
    state_ = state_ * 48271 % 2147483647;
    return static_cast<size_t>(static_cast<double>(state_) / 2147483647 *
                               static_cast<double>(count));
  }

 private:
  uint64_t state_ = 20261116;
};

// Draws as many values as there are, again and again.
class Resamples {
 public:
  Resamples(const std::vector<double>& samples, Statistic statistic)
      : sorted_(samples), statistic_(statistic) {
    std::sort(sorted_.begin(), sorted_.end());
  }
  double next(Draw& draw) { return statistic_ == Statistic::Median ? median(draw) : mean(draw); }

 private:
  // By counting: no resample is sorted.
  double median(Draw& draw) {
    const size_t n = sorted_.size();
    count_.assign(n, 0);
    for (size_t i = 0; i < n; ++i) ++count_[draw.below(n)];
    const size_t lower = (n + 1) / 2, upper = n / 2 + 1;
    size_t seen = 0;
    double low = NAN;
    for (size_t i = 0; i < n; ++i) {
      seen += count_[i];
      if (std::isnan(low) && seen >= lower) low = sorted_[i];
      if (seen >= upper) return (low + sorted_[i]) / 2;
    }
    return low;
  }
  double mean(Draw& draw) const {
    const size_t n = sorted_.size();
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += sorted_[draw.below(n)];
    return sum / static_cast<double>(n);
  }

  std::vector<double> sorted_;
  std::vector<uint32_t> count_;
  Statistic statistic_;
};

template <class Resample>
Interval middle(double value, const Resample& resample) {
  constexpr double kOutside = (1 - kIntervalLevel / 100) / 2;
  std::vector<double> results(kResamples);
  for (double& result : results) result = resample();
  return {value, quantile(results, kOutside), quantile(results, 1 - kOutside)};
}

}  // namespace

double statistic_of(const std::vector<double>& samples, Statistic statistic) {
  if (statistic == Statistic::Median) return quantile(samples, 0.5);
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

std::optional<Interval> interval_of(const std::vector<double>& samples, Statistic statistic) {
  if (samples.size() < kLeastSamples) return std::nullopt;
  Resamples resamples(samples, statistic);
  Draw draw;
  return middle(statistic_of(samples, statistic), [&] { return resamples.next(draw); });
}

std::optional<Interval> ratio_interval(const std::vector<double>& of, const std::vector<double>& to,
                                       Statistic statistic) {
  if (std::min(of.size(), to.size()) < kLeastSamples) return std::nullopt;
  Resamples first(of, statistic), second(to, statistic);
  Draw draw;
  return middle(statistic_of(of, statistic) / statistic_of(to, statistic), [&] {
    const double above = first.next(draw);
    return above / second.next(draw);
  });
}

}  // namespace moonshard::analysis
