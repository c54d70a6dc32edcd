// Statistics of a name over the whole trace, and sums over a range of time. Each answer takes a few
// binary searches per group of spans; the sums may be spread over several frames.
#pragma once

#include <cstdint>
#include <vector>

#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {

struct NameStatistics : NameTotals {
  double mean_us = 0, min_us = 0, max_us = 0, median_us = 0, p95_us = 0;
};
NameStatistics name_statistics(const TraceIndex& index, uint32_t name);

/// Time of a name on one lane; divide by the lane's busy time for its share. A name that nests in
/// itself counts each time.
double name_time_on_lane(const TraceIndex& index, uint32_t name, uint32_t lane);

/// Time of one span that no span of the row below takes.
double self_time(const Trace& trace, const TraceIndex& index, SpanRef span);

/// How long the spans of a name are: bins of equal width on a logarithmic scale.
struct DurationHistogram {
  std::vector<double> edges_us;  ///< one more than counts; empty for a name without spans
  std::vector<uint32_t> counts;
};
DurationHistogram duration_histogram(const TraceIndex& index, uint32_t name, size_t max_bins);

/// Sums over a range of time: spans that stick out count with the part inside.
class RangeSums {
 public:
  RangeSums() = default;
  RangeSums(const TraceIndex& index, const TimeWindow& range);

  struct Lane {
    uint32_t lane = 0;
    double busy_us = 0;
  };
  struct Rank {
    double communication_us = 0, exposed_us = 0;
  };
  struct Name {
    uint32_t name = 0, count = 0;
    double total_us = 0;
  };

  /// Goes through at most max_groups further groups of spans; true when all are done. Names are
  /// then sorted by their time.
  bool step(const Trace& trace, const TraceIndex& index, size_t max_groups);

  const TimeWindow& range() const { return range_; }
  bool done() const { return done_; }
  const std::vector<Lane>& lanes() const { return lanes_; }  ///< only those with busy time
  const std::vector<Rank>& ranks() const { return ranks_; }  ///< as index.ranks
  const std::vector<Name>& names() const { return names_; }  ///< only those inside

 private:
  TimeWindow range_;
  std::vector<Lane> lanes_;
  std::vector<Rank> ranks_;
  std::vector<Name> names_;
  uint32_t next_name_ = 0;
  bool done_ = false;
};

}  // namespace moonshard::viewer
