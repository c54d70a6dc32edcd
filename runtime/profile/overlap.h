// From spans to figures: how long collectives ran, how long the computation waited for them, and
// what share of communication was overlapped with computation.
#pragma once

#include <string>
#include <vector>

#include "runtime/profile/timeline.h"

namespace moonshard::profile {

/// Lanes that communication writes: work from its start to its end, and the waiting for it.
inline constexpr const char* kCommLane = "comm";
inline constexpr const char* kExposedLane = "exposed";
inline constexpr const char* kHostLane = "host ";  ///< before the lane of messages between hosts

struct CollectiveTimes {
  std::string operation;  ///< "all_gather", …; "host all_reduce" for messages between hosts
  int64_t count = 0, bytes = 0;
  double work_ms = 0, exposed_ms = 0;
  double overlap_percent() const;
};

/// Collectives of one group run one after the other: one that starts while another runs begins to
/// work when that is done.
std::vector<CollectiveTimes> collective_times(const std::vector<Span>& spans);

}  // namespace moonshard::profile
