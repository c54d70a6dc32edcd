#include "viewer/data/noise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/analysis/rows.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kLeastSteps = 3, kResamples = 2000;
constexpr double kOutside = 0.025;  // on either side of an interval
// A resample of a very long run costs its length; the first steps say as much.
constexpr size_t kMostSamples = 2000;

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

std::vector<double> sorted_copy(const std::vector<double>& samples) {
  std::vector<double> copy(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(std::min(
                                                                  samples.size(), kMostSamples)));
  std::ranges::sort(copy);
  return copy;
}

// Median of as many draws as there are values, by counting: no resample is sorted.
double drawn_median(const std::vector<double>& sorted, std::vector<uint32_t>& count, Draw& draw) {
  const size_t n = sorted.size();
  count.assign(n, 0);
  for (size_t i = 0; i < n; ++i) ++count[draw.below(n)];
  const size_t lower = (n + 1) / 2, upper = n / 2 + 1;
  size_t seen = 0;
  double low = NAN;
  for (size_t i = 0; i < n; ++i) {
    seen += count[i];
    if (std::isnan(low) && seen >= lower) low = sorted[i];
    if (seen >= upper) return (low + sorted[i]) / 2;
  }
  return low;
}

template <class Resample>
Interval percentiles(double value, const Resample& resample) {
  std::vector<double> results(kResamples);
  for (double& result : results) result = resample();
  return {value, analysis::quantile(results, kOutside), analysis::quantile(results, 1 - kOutside)};
}

}  // namespace

std::vector<double> step_samples(const PointDetail& detail) {
  std::vector<double> samples;
  const auto add = [&](double ms) {
    if (std::isfinite(ms) && ms > 0) samples.push_back(ms);
  };
  for (const double ms : detail.time.samples_ms) add(ms);
  for (size_t i = 0; detail.time.samples_ms.empty() && i < detail.steps.size(); ++i) {
    if (!detail.steps[i].warmup) add(detail.steps[i].time_ms);
  }
  return samples;
}

std::optional<Interval> median_interval(const std::vector<double>& samples) {
  if (samples.size() < kLeastSteps) return std::nullopt;
  const std::vector<double> sorted = sorted_copy(samples);
  std::vector<uint32_t> count;
  Draw draw;
  return percentiles(analysis::quantile(samples, 0.5),
                     [&] { return drawn_median(sorted, count, draw); });
}

std::optional<Interval> ratio_interval(const std::vector<double>& of,
                                       const std::vector<double>& to) {
  if (std::min(of.size(), to.size()) < kLeastSteps) return std::nullopt;
  const std::vector<double> first = sorted_copy(of), second = sorted_copy(to);
  std::vector<uint32_t> count;
  Draw draw;
  return percentiles(analysis::quantile(of, 0.5) / analysis::quantile(to, 0.5), [&] {
    const double above = drawn_median(first, count, draw);
    return above / drawn_median(second, count, draw);
  });
}

}  // namespace moonshard::viewer
