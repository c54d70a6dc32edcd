// A training run that survives: it goes on from its newest whole checkpoint, saves every so many
// steps, and saves and ends when the system asks it to (SIGTERM). Who starts it again
// (moonshard run --max-restarts, a job script) loses the steps since the last save, and no more.
//
// Steps with secret noise that are lost are done again with other noise: what they have spent must
// be charged all the same. The file `spent`, beside the checkpoints, has the account of the step in
// progress before it begins.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/interrupt.h"
#include "runtime/checkpoint/saver.h"
#include "runtime/comm/communicator.h"

namespace moonshard::checkpoint {

struct DurableOptions : SaveOptions {
  DurableOptions() : SaveOptions{.wait = false, .keep = 2, .keep_every = 0} {}
  int64_t every = 100;  ///< steps from one save to the next
};

/// The run was asked to end, and all that it needs to go on is on the disk.
class Stopped : public Error {
 public:
  using Error::Error;
};

class DurableRun {
 public:
  /// Resumes from the newest checkpoint of the folder that is whole, if there is any. All ranks
  /// together. The trainer and the saver must outlive it.
  DurableRun(train::Trainer& trainer, Saver& saver, std::filesystem::path folder,
             const DurableOptions& options);
  ~DurableRun();

  /// The step of the checkpoint that it goes on from; none at the first start.
  std::optional<int64_t> resumed_step() const { return resumed_step_; }
  /// What users should hear of: damaged checkpoints that were passed over, saves that failed. Each
  /// once.
  std::vector<std::string> take_warnings();

  void before_step();
  /// Saves if it is time. Throws Stopped after the save that the system asked for.
  void after_step(int64_t step);

 private:
  class SpentFile;

  void resume_newest();
  void charge_lost_steps();
  bool must_stop();
  void hear_of_saves();

  train::Trainer& trainer_;
  Saver& saver_;
  std::filesystem::path folder_;
  DurableOptions options_;
  StopSignals signals_;
  std::unique_ptr<SpentFile> spent_;  ///< on rank 0 of a run with secret noise
  std::optional<int64_t> resumed_step_;
  std::vector<std::string> warnings_;
  // Ranks hear of a signal at different times: what each knew after one step is everybody's after
  // the next.
  comm::Pending agreeing_;
  at::Tensor agreed_;
};

}  // namespace moonshard::checkpoint
