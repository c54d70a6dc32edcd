// A trace (Chrome's event format, as Kineto and Perfetto write it) as rows of spans: one lane per
// process and thread or stream, rows within a lane by nesting. Columns instead of objects, so that
// a million events take some tens of megabytes and a frame finds its part by binary search.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/input/control.h"
#include "runtime/input/open_file.h"

namespace moonshard::viewer {

/// Spans of one nesting depth of one lane: sorted by start, never overlapping.
struct TraceRow {
  std::vector<double> start_us;    ///< from the trace's own beginning
  std::vector<float> length_us;    ///< 0 for an instant
  std::vector<uint32_t> name;      ///< index into Trace::names
  std::vector<uint32_t> category;  ///< index into Trace::categories
  size_t size() const { return start_us.size(); }
};

struct TraceLane {
  int64_t rank = -1;     ///< from distributedInfo or the file's name; -1: not said
  std::string process;   ///< what the trace calls it, or "process N"
  std::string thread;    ///< "thread N", "stream 7", or what the trace calls it
  bool gpu = false;      ///< kernels and copies rather than a thread of the host
  uint32_t file = 0;     ///< of those that were read
  std::string key;       ///< as in the file: lane_key
  double origin_us = 0;  ///< where the axis begins, of the file's own clock
  std::vector<TraceRow> rows;
};

/// Process and thread as one text.
inline std::string lane_key(const std::string& process, const std::string& thread) {
  return process + "/" + thread;
}

/// A number over time (ph "C"), e.g. memory.
struct TraceCounter {
  std::string name;
  std::vector<double> time_us, value;
};

struct Trace {
  std::vector<std::string> names, categories;
  std::vector<TraceLane> lanes;  ///< by rank; host threads before streams
  std::vector<TraceCounter> counters;
  double length_us = 0;               ///< from the first start to the last end
  uint64_t num_events = 0;            ///< spans and instants
  uint64_t num_skipped = 0;           ///< events of a kind that is not shown, or without a time
  std::vector<std::string> problems;  ///< what was wrong, e.g. a file that ends early
};

struct TraceLimits {
  uint64_t max_text_bytes = 2ull << 30;  ///< of one file, inflated
  uint64_t max_events = 20'000'000;      ///< of all files
  size_t max_names = 1'000'000;          ///< different ones
  size_t max_lanes = 10'000;
};

/// Reads one file per rank, plain or gzipped, onto one time axis. Streamed: what is held is
/// columns, not text. Throws IoError when a file is no trace at all. One that ends early or is
/// damaged further on gives what came before, and a line in problems.
Trace read_trace(const std::vector<std::filesystem::path>& files, const ReadControl& control = {},
                 const TraceLimits& limits = {});
/// The same of one file that is open.
Trace read_trace(OpenFile file, const ReadControl& control, const TraceLimits& limits);

}  // namespace moonshard::viewer
