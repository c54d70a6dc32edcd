#include "runtime/profile/overlap.h"

#include <algorithm>
#include <map>

namespace moonshard::profile {
namespace {

// "all_gather blocks.3" -> "all_gather"
std::string operation_of(const std::string& name) {
  return name.substr(0, name.find(' '));
}

CollectiveTimes& entry(std::vector<CollectiveTimes>& list, const std::string& operation) {
  const auto known = std::find_if(list.begin(), list.end(), [&](const CollectiveTimes& times) {
    return times.operation == operation;
  });
  return known != list.end() ? *known : list.emplace_back(CollectiveTimes{operation, 0, 0, 0, 0});
}

}  // namespace

double CollectiveTimes::overlap_percent() const {
  if (work_ms <= 0) return 0;
  return std::clamp(100.0 * (1.0 - exposed_ms / work_ms), 0.0, 100.0);
}

std::vector<CollectiveTimes> collective_times(const std::vector<Span>& spans) {
  std::vector<CollectiveTimes> list;
  std::map<std::string, double> free_from;  // per lane: when the work before it is done
  for (const Span& span : spans) {          // by their beginning
    const bool host = span.lane.starts_with(kHostLane);
    const std::string lane = host ? span.lane.substr(std::string(kHostLane).size()) : span.lane;
    const std::string operation = (host ? kHostLane : "") + operation_of(span.name);
    if (lane == kExposedLane) {
      entry(list, operation).exposed_ms += span.end_ms - span.begin_ms;
    } else if (lane.starts_with(kCommLane)) {
      double& busy = free_from[span.lane];
      CollectiveTimes& times = entry(list, operation);
      ++times.count;
      times.bytes += span.bytes;
      // On one device the modelled link has to wait for a gap between compute kernels; a real one
      // would not.
      times.work_ms += span.modelled_ms > 0
                           ? span.modelled_ms
                           : std::max(0.0, span.end_ms - std::max(span.begin_ms, busy));
      busy = std::max(busy, span.end_ms);
    }
  }
  return list;
}

}  // namespace moonshard::profile
