#include "runtime/tracing/host_work.h"

#include <algorithm>

namespace moonshard::tracing {
namespace {

// The segment at a moment; -1 before the first.
int64_t segment_at(const std::vector<HostSegment>& segments, double time_us) {
  const auto behind = std::upper_bound(
      segments.begin(), segments.end(), time_us,
      [](double time, const HostSegment& segment) { return time < segment.start_us; });
  return behind - segments.begin() - 1;
}

}  // namespace

std::vector<BusyRun> busy_runs(const std::vector<HostSegment>& segments, double begin_us,
                               double end_us) {
  std::vector<BusyRun> runs;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].op == kNone) continue;
    const double end = i + 1 < segments.size() ? segments[i + 1].start_us : segments[i].start_us;
    const double from = std::max(segments[i].start_us, begin_us), to = std::min(end, end_us);
    if (to <= from) continue;
    if (!runs.empty() && from - runs.back().end_us < kIdleUs) {
      runs.back().end_us = to;
    } else {
      runs.push_back({from, to});
    }
  }
  return runs;
}

double share_without_trace(double length_us, double overhead_us) {
  constexpr double kLeast = 0.3;
  return length_us > 0 ? std::max(kLeast, 1 - overhead_us / length_us) : 1;
}

ScaledHost::ScaledHost(const HostLabels& labels,
                       const std::function<double(const HostSegment&)>& factor, double overhead_us)
    : labels_(labels), factors_(labels.segments.size()), before_(labels.segments.size()) {
  for (size_t lane = 0; lane < labels.segments.size(); ++lane) {
    const std::vector<HostSegment>& segments = labels.segments[lane];
    double sum = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (i > 0) sum += factors_[lane].back() * (segments[i].start_us - segments[i - 1].start_us);
      const bool is_traced = segments[i].op != kNone && i + 1 < segments.size();
      const double length = is_traced ? segments[i + 1].start_us - segments[i].start_us : 0;
      factors_[lane].push_back(factor(segments[i]) * share_without_trace(length, overhead_us));
      before_[lane].push_back(sum);
    }
  }
}

// Scaled time since the lane's first segment; before it, and where nothing is known, time is its
// own measure.
double ScaledHost::until(uint32_t lane, double time_us) const {
  const std::vector<HostSegment>& segments = labels_.segments[lane];
  const int64_t place = segment_at(segments, time_us);
  if (place < 0) return time_us - segments.front().start_us;
  const auto i = static_cast<size_t>(place);
  return before_[lane][i] + factors_[lane][i] * (time_us - segments[i].start_us);
}

double ScaledHost::between(uint32_t lane, double from_us, double to_us) const {
  if (lane >= labels_.segments.size() || labels_.segments[lane].empty() || to_us <= from_us)
    return to_us - from_us;
  return until(lane, to_us) - until(lane, from_us);
}

}  // namespace moonshard::tracing
