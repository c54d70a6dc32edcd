// How long a run takes on ranks that fail: work since the last save is lost, the job starts again,
// and the rest of the time is goodput. Means are exact, however rare failures are; how far runs lie
// apart is drawn by seed, from failure to failure, so that a year of 1,024 GPUs takes milliseconds.
// Torch-free.
#pragma once

#include <cstdint>

#include "runtime/base/json.h"

namespace moonshard::plan {

struct FailureModel {
  double step_s = 0;
  int64_t steps = 0;     ///< of the run
  int64_t ranks = 1;     ///< any of which ends the job
  double mtbf_s = 0;     ///< mean time between failures of one rank; they come at any moment
  double save_s = 0;     ///< that training stands still for a save
  double write_s = 0;    ///< behind it, beside the training; then it counts, and the next may begin
  double restart_s = 0;  ///< from a failure to the first step; it may fail, too
  int64_t save_every = 0;  ///< steps; 0: the best
  uint64_t seed = 0;
  int64_t histories = 200;  ///< that are drawn, or fewer where failures are very many
};

/// Means of all runs that may be; no seed changes them.
struct Goodput {
  int64_t save_every = 0;
  double wall_s = 0;
  double wall_low_s = 0, wall_high_s = 0;  ///< of histories: a tenth of them is below, and above
  double useful_s = 0;                     ///< steps that stay
  double saving_s = 0, lost_s = 0, restarting_s = 0;
  double failures = 0, lost_steps = 0;
  double share() const { return wall_s > 0 ? useful_s / wall_s : 1; }
};

/// Mean time of the whole run with a save every so many steps, for failures at a constant rate;
/// infinite where it is beyond all numbers.
double expected_wall_s(const FailureModel& model, int64_t save_every);

/// The interval with the smallest of these, in steps; all of them where a save costs more than it
/// is worth.
int64_t best_save_every(const FailureModel& model);

/// Throws UsageError for numbers that are no run, or one that is not going to end.
Goodput simulate_failures(const FailureModel& model);

/// One run, drawn by the model's seed and this number.
Goodput drawn_run(const FailureModel& model, int64_t save_every, uint64_t number);

/// Tables with these names, of Lua.
FailureModel failure_model_from_json(const Json& table);
Json to_json(const Goodput& goodput);

}  // namespace moonshard::plan
