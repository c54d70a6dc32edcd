// Reads Chrome traces for analysis: Kineto's (PyTorch's and our own) and a plan's. Files are
// untrusted: bounded and streamed; a million events take a second.
#pragma once

#include <filesystem>

#include "runtime/input/control.h"
#include "runtime/input/open_file.h"
#include "runtime/tracing/trace_data.h"

namespace moonshard::tracing {

struct TraceReadLimits {
  uint64_t max_events = 20'000'000;
  uint64_t max_text_bytes = 8ull << 30;
  size_t max_lanes = 10'000;
};

/// Plain or compressed (gzip). Throws IoError where it is no trace.
TraceData read_events(const std::filesystem::path& file, const ReadControl& control = {},
                      const TraceReadLimits& limits = {});
/// The same of a file that is open.
TraceData read_events(OpenFile file, const ReadControl& control, const TraceReadLimits& limits);

}  // namespace moonshard::tracing
