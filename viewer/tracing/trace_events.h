// Events of traces while they are read: flat rows and tables of names. trace_rows.h makes lanes of
// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/input/name_table.h"
#include "viewer/tracing/trace.h"

namespace moonshard::viewer {

/// 24 bytes: there may be tens of millions.
struct TraceEvent {
  double start_us = 0, length_us = 0;  ///< a length below 0: begun, not ended yet
  uint32_t name = 0;
  uint16_t category = 0;  ///< there are at most kMaxCategories
};
inline constexpr size_t kMaxCategories = 10'000;

/// One file of a trace.
struct TraceFile {
  int64_t rank = -1;
  std::optional<int64_t> base_ns;  ///< what its times count from
  double first_us = std::numeric_limits<double>::infinity();
  double last_us = -std::numeric_limits<double>::infinity();
  double shift_us = 0;  ///< to the common axis

  void include(double from_us, double to_us) {
    first_us = std::min(first_us, from_us);
    last_us = std::max(last_us, to_us);
  }
};

struct RawLane {
  uint32_t file = 0;
  std::string process, thread;  ///< pid and tid, as text
  uint64_t num_gpu_events = 0;
  std::vector<TraceEvent> events = {};  ///< freed when its rows are made: both do not fit
  std::vector<uint32_t> open = {};      ///< begun events, innermost last
};

/// What metadata events say of a process or a thread.
struct TraceLabel {
  std::string name, labels;
  double sort_index = 0;
};

struct RawCounter {
  uint32_t file = 0;
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< time, value
};

struct RawTrace {
  explicit RawTrace(const TraceLimits& given) : limits(given), names(given.max_names) {}

  /// The lane of a process and thread of the current file; nothing when there are too many.
  std::optional<uint32_t> lane(std::string_view process, std::string_view thread);
  /// Whether there is room for one more event.
  bool is_full() const { return num_events + num_counter_points >= limits.max_events; }
  void add_span(uint32_t lane, std::string_view name, std::string_view category, double start_us,
                double length_us);
  void end_span(uint32_t lane, double end_us);
  void add_counter(const std::string& name, double time_us, double value);
  void add_problem(std::string text);

  TraceLimits limits;
  std::vector<TraceFile> files;
  std::vector<RawLane> lanes;
  std::vector<RawCounter> counters;
  /// By file, process and thread; the thread is empty for what is said of the process.
  std::map<std::tuple<uint32_t, std::string, std::string>, TraceLabel> labels;
  NameTable names, categories{kMaxCategories};
  uint64_t num_events = 0;  ///< of all lanes
  uint64_t num_skipped = 0, num_counter_points = 0, num_bad_times = 0, num_lane_overflow = 0;
  uint64_t num_unmatched_ends = 0;
  std::vector<std::string> problems;

 private:
  std::unordered_map<std::string, uint32_t> lane_places_, counter_places_;
  std::string key_;
  std::string last_key_;
  std::optional<uint32_t> last_lane_;
};

/// Makes the trace of what was read: one time axis, lanes in order, rows by nesting.
Trace make_trace(RawTrace raw);

}  // namespace moonshard::viewer
