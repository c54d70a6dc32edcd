// One seed, one history: which world it is of, what was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moonshard::simulation {

/// Deliberate mistakes, made through the seams: each must be found.
enum class Defect {
  None,
  RankFileNotSynced,    ///< an index is written over files that are not on the disk
  IndexBeforeParts,     ///< published before the ranks' files are written
  PruneBeforePublish,   ///< older checkpoints go before the new one is there
  FolderNotSynced,      ///< renames are never made to last
  AcknowledgedEarly,    ///< a save counts before it is published
  SpentAfterStep,       ///< the account is written after the step that it is of
  SpentNotSynced,       ///< the account never reaches the disk
  LockReleasedEarly,    ///< of the folder, while its holder works
  ResultNotSynced,      ///< of a sweep's point
  SettledByStatusWord,  ///< a point counts as done by its status word, without a record
  JudgeForgetsRank,     ///< one rank is never looked at
  JudgeHasNoTimeout,    ///< a collective may take for ever
  JudgeCountsPauses,    ///< time counts while the process is stopped
  RestartAfterStop,     ///< a job that was asked to end is started again
};

struct Outcome {
  std::string problem;             ///< the invariant that was broken; empty when none was
  std::vector<std::string> lines;  ///< the history, if it was asked for
  uint64_t fingerprint = 0;
};

/// Ranks that save and go on, their launcher, their account.
Outcome run_durable_world(uint64_t seed, Defect defect, bool keeps_log);
/// Processes that want the same folder.
Outcome run_owners_world(uint64_t seed, Defect defect, bool keeps_log);
/// A sweep's parent and the processes of its points.
Outcome run_sweep_world(uint64_t seed, Defect defect, bool keeps_log);
/// Ranks in collectives, their watchdogs and the board.
Outcome run_watch_world(uint64_t seed, Defect defect, bool keeps_log);

}  // namespace moonshard::simulation
