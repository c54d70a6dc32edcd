// Noise of measured times: percentile bootstraps of a statistic of step times, and of the ratio of
// two. The generator is fixed, so that equal records have equal intervals in tables, reports and
// the viewer (docs/analysis.md says what they cover).
#pragma once

#include <optional>
#include <vector>

namespace moonshard::analysis {

enum class Statistic { Median, Mean };

/// Share of resamples inside an interval, in percent, and how many resamples there are.
inline constexpr double kIntervalLevel = 95;
inline constexpr size_t kResamples = 2000;
/// Fewer samples have no interval.
inline constexpr size_t kLeastSamples = 3;

struct Interval {
  double value = 0, low = 0, high = 0;
  /// What is measured does not say on which side of the threshold the figure lies.
  bool contains(double threshold) const { return low <= threshold && threshold <= high; }
};

double statistic_of(const std::vector<double>& samples, Statistic statistic);

/// Where most resamples lie; nothing below kLeastSamples.
std::optional<Interval> interval_of(const std::vector<double>& samples, Statistic statistic);
/// Of a ratio; both lists are resampled, independently.
std::optional<Interval> ratio_interval(const std::vector<double>& of, const std::vector<double>& to,
                                       Statistic statistic);

}  // namespace moonshard::analysis
