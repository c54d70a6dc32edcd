// The host's threads as time: when they worked, and how long their work between two moments takes
// when some of it is scaled.
#pragma once

#include <functional>
#include <vector>

#include "runtime/tracing/host_labels.h"

namespace moonshard::tracing {

/// A thread without an operator for so long is idle; shorter pauses are code that is not traced.
inline constexpr double kIdleUs = 100;

struct BusyRun {
  double begin_us = 0, end_us = 0;
};
/// When a thread worked, between two moments.
std::vector<BusyRun> busy_runs(const std::vector<HostSegment>& segments, double begin_us,
                               double end_us);

/// What of a traced piece of the host's work is left without the trace, which takes `overhead_us`
/// for each: at least a third, as short pieces are timed coarsely.
double share_without_trace(double length_us, double overhead_us);

/// Time of the host with every segment scaled by a factor, and without the trace's own time.
class ScaledHost {
 public:
  ScaledHost(const HostLabels& labels, const std::function<double(const HostSegment&)>& factor,
             double overhead_us = 0);
  double between(uint32_t lane, double from_us, double to_us) const;

 private:
  double until(uint32_t lane, double time_us) const;

  const HostLabels& labels_;
  std::vector<std::vector<double>> factors_, before_;  // by lane and segment
};

}  // namespace moonshard::tracing
