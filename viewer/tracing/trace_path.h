// The critical path of a traced step as the trace panel shows it: pieces on lanes, sums, and what
// the step would take without some of it. The analysis is runtime/tracing's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/input/control.h"

namespace moonshard::viewer {

/// Neighbours on one lane and of one kind are one piece.
struct TracePathPiece {
  double start_us = 0, end_us = 0;  ///< of the file's own clock
  uint32_t lane = 0;                ///< in TracePath::lanes
  uint8_t kind = 0;                 ///< in tracing::kPathKinds
};

struct TracePathSum {
  std::string name;
  double us = 0;
};

/// "without norms": what the step would take.
struct TraceForecast {
  std::string change, note;
  double us = 0;
};

struct TracePath {
  double begin_us = 0, end_us = 0;
  std::vector<std::string> lanes;                          ///< keys as in TraceLane::key
  std::vector<TracePathPiece> pieces;                      ///< by time, without holes
  std::vector<TracePathSum> kinds, phases, layers, names;  ///< largest first; the last two cut
  std::vector<TraceForecast> forecasts;
  uint64_t num_steps = 1;  ///< in the trace; the path is of the last one
};

/// Throws IoError when it is no trace.
TracePath read_path(const std::filesystem::path& file, const ReadControl& control = {});

}  // namespace moonshard::viewer
