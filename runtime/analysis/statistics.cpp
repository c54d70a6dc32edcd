#include "runtime/analysis/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moonshard::analysis {

double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double position = q * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, samples.size() - 1);
  const double share = position - static_cast<double>(below);
  return samples[below] + share * (samples[above] - samples[below]);
}

records::Statistics summarize(const std::vector<double>& samples) {
  records::Statistics summary{0, 0, 0, 0, 0, 0, 0};
  summary.count = static_cast<double>(samples.size());
  if (samples.empty()) return summary;
  summary.mean =
      std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  summary.median = quantile(samples, 0.5);
  summary.min = *std::min_element(samples.begin(), samples.end());
  summary.max = *std::max_element(samples.begin(), samples.end());
  summary.p95 = quantile(samples, 0.95);
  summary.iqr = quantile(samples, 0.75) - quantile(samples, 0.25);
  return summary;
}

}  // namespace moonshard::analysis
