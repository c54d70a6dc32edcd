// Reads traces in Chrome's event format, as Kineto and Perfetto write them, plain or gzipped: one
// file per rank, put on one time axis. Streamed: what is held is columns, not text.
#pragma once

#include <filesystem>
#include <vector>

#include "viewer/input/control.h"
#include "viewer/tracing/trace.h"

namespace moonshard::viewer {

struct TraceLimits {
  uint64_t max_text_bytes = 2ull << 30;  ///< of one file, inflated
  uint64_t max_events = 20'000'000;      ///< of all files
  size_t max_names = 1'000'000;          ///< different ones
  size_t max_lanes = 10'000;
};

/// Throws IoError when a file is no trace at all. One that ends early or is damaged further on
/// gives what came before, and a line in problems.
Trace read_trace(const std::vector<std::filesystem::path>& files, const ReadControl& control = {},
                 const TraceLimits& limits = {});

}  // namespace moonshard::viewer
