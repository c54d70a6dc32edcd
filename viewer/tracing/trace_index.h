// What the trace panel needs of a trace, computed once: spans by name, busy time of each lane,
// communication of each rank and how much of it nothing hides. Building takes O(n log n) and about
// 30 bytes per span; afterwards every question costs a few binary searches, whatever the length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "viewer/tracing/trace.h"

namespace moonshard::viewer {

struct TimeWindow {
  double start_us = 0, end_us = 0;
  double length_us() const { return end_us - start_us; }
  bool operator==(const TimeWindow&) const = default;
};

/// A span by its place. Rows are counted through all lanes, see TraceIndex::rows.
struct SpanRef {
  uint32_t row = 0, index = 0;
  bool operator==(const SpanRef&) const = default;
};

/// Pieces of time in order, apart from each other.
class TimePieces {
 public:
  size_t size() const { return start_us_.size(); }
  double start_us(size_t i) const { return start_us_[i]; }
  double end_us(size_t i) const { return start_us_[i] + (before_us_[i + 1] - before_us_[i]); }
  double total_us() const { return before_us_.back(); }
  /// How much of the window the pieces cover.
  double covered_us(const TimeWindow& window) const;
  /// Adds a piece that starts at or after the last one's start; a touching one prolongs it.
  void append(double start_us, double end_us);
  void shrink_to_fit();

 private:
  std::vector<double> start_us_;
  std::vector<double> before_us_ = {
      0};  // length of all pieces before this one; one more at the end
};

/// Spans with one name in one row: group_spans[first_span] up to the next group's first.
struct NameGroup {
  uint32_t row = 0;
  uint32_t first_span = 0;
};

struct NameTotals {
  uint32_t count = 0;
  double total_us = 0;
  double self_us = 0;  ///< without the time of spans nested one row below
};

struct TraceRank {
  int64_t rank = -1;
  uint32_t first_lane = 0, num_lanes = 0;
  TimePieces communication;  ///< some lane is inside a collective
  TimePieces exposed;        ///< ... and no other lane of the rank computes
};

/// Largest and smallest value of stretches of a counter, level over level.
struct CounterLevels {
  static constexpr size_t kFanOut = 16;
  struct Level {
    std::vector<double> low, high;
  };
  std::vector<Level> levels;  ///< the first has a value per kFanOut samples
  double low = 0, high = 0;   ///< over all; finite
};

struct TraceIndex {
  struct Row {
    uint32_t lane = 0, depth = 0;
  };
  std::vector<Row> rows;               ///< all rows of all lanes
  std::vector<uint32_t> lane_row;      ///< first row of each lane
  std::vector<TimePieces> busy;        ///< per lane: some span is open
  std::vector<TraceRank> ranks;        ///< neighbouring lanes with one rank
  std::vector<uint32_t> lane_rank;     ///< lane -> place in ranks
  std::vector<uint8_t> communication;  ///< per name: 1 for a collective

  std::vector<uint32_t> name_group;   ///< first group of each name, and one past the last
  std::vector<NameGroup> groups;      ///< by name, then row; one more at the end
  std::vector<uint32_t> group_spans;  ///< index in the row, rising within a group
  std::vector<double> before_us;      ///< lengths of all group_spans before; one more at the end
  std::vector<float> durations_us;    ///< as group_spans, but sorted within a name
  std::vector<NameTotals> names;
  std::vector<CounterLevels> counters;

  const TraceRow& row(const Trace& trace, uint32_t row) const {
    return trace.lanes[rows[row].lane].rows[rows[row].depth];
  }
  /// Range of a name in group_spans and durations_us.
  uint32_t first_span(uint32_t name) const { return groups[name_group[name]].first_span; }
  uint32_t last_span(uint32_t name) const { return groups[name_group[name + 1]].first_span; }
};

/// Throws UsageError for a trace that violates the invariants of trace.h (columns of one length,
/// names that exist, finite times in order).
TraceIndex build_trace_index(const Trace& trace);

/// A trace together with its index, for the panel.
struct IndexedTrace {
  std::shared_ptr<const Trace> trace;
  TraceIndex index;
};

/// Collectives by the names that NCCL, Gloo and c10d give them.
bool is_communication(std::string_view name);

// Steps of build_trace_index, in trace_overlap.cpp: which span lies in which, when a lane is busy,
// and which communication no compute hides.

inline double end_of(const TraceRow& row, size_t i) {
  return row.start_us[i] + static_cast<double>(row.length_us[i]);
}

/// Calls visit(parent, child) for each span of a row that starts inside a span of the row above.
/// One walk through both.
template <typename Visit>
void for_each_parent(const TraceRow& above, const TraceRow& below, Visit visit) {
  size_t parent = 0;
  for (size_t child = 0; child < below.size(); ++child) {
    const double start = below.start_us[child];
    while (parent + 1 < above.size() && above.start_us[parent + 1] <= start) ++parent;
    if (parent < above.size() && above.start_us[parent] <= start && start < end_of(above, parent)) {
      visit(parent, child);
    }
  }
}

/// When some span of the lane is open.
TimePieces busy_pieces(const TraceLane& lane);

/// Fills communication and exposed of each rank. With streams of a GPU in the rank only these
/// count: a host thread merely starts collectives there. Annotations and copies do not count as
/// compute.
void find_exposed(const Trace& trace, TraceIndex& index);

}  // namespace moonshard::viewer
