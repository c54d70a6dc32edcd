// The files of a run folder beside its points: sweep.json, env.json, progress.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/data/run_data.h"
#include "viewer/readers/point_summary.h"

namespace moonshard::viewer {

inline constexpr size_t kMaxRunProblems = 100;

inline void add_problem(RunData& run, std::string text) {
  if (run.problems.size() < kMaxRunProblems) run.problems.push_back(std::move(text));
}

struct PlannedPoint {
  std::string id;
  size_t options = 0, options_size = 0;  ///< where the options stand in sweep.json; 0: nowhere
};

/// Fills the run's head and returns its points in the sweep's order. `common` gets the options that
/// all points share, `where` names the file. Throws IoError for text that is no sweep.
std::vector<PlannedPoint> read_sweep(std::string_view text, const std::string& where, RunData& run,
                                     Cells& common);

/// env.json, one line per key.
std::vector<TextPair> read_environment(std::string_view text, const std::string& where);

SweepProgress read_progress(std::string_view text, const std::string& where);

}  // namespace moonshard::viewer
