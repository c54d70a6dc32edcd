#include "viewer/data/noise.h"

#include <algorithm>
#include <cmath>

namespace moonshard::viewer {
namespace {

using analysis::Statistic;

// A resample of a very long run costs its length, while a frame waits; the first steps say as much.
std::vector<double> first_of(const std::vector<double>& samples) {
  constexpr size_t kMostSamples = 2000;
  return {samples.begin(),
          samples.begin() + static_cast<ptrdiff_t>(std::min(samples.size(), kMostSamples))};
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
  auto interval = analysis::interval_of(first_of(samples), Statistic::Median);
  if (interval) interval->value = analysis::statistic_of(samples, Statistic::Median);
  return interval;
}

std::optional<Interval> ratio_interval(const std::vector<double>& of,
                                       const std::vector<double>& to) {
  auto interval = analysis::ratio_interval(first_of(of), first_of(to), Statistic::Median);
  if (interval) {
    interval->value = analysis::statistic_of(of, Statistic::Median) /
                      analysis::statistic_of(to, Statistic::Median);
  }
  return interval;
}

}  // namespace moonshard::viewer
