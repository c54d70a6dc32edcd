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
#include "runtime/checkpoint/durable_course.h"
#include "runtime/checkpoint/saver.h"

namespace moonshard::checkpoint {

class DurableRun {
 public:
  /// Resumes from the newest checkpoint of the folder that is whole, if there is any. All ranks
  /// together. The trainer and the saver must outlive it.
  DurableRun(train::Trainer& trainer, Saver& saver, std::filesystem::path folder,
             const DurableOptions& options);
  ~DurableRun();

  /// The step of the checkpoint that it goes on from; none at the first start.
  std::optional<int64_t> resumed_step() const { return course_->resumed_step(); }
  /// What users should hear of: damaged checkpoints that were passed over, saves that failed. Each
  /// once.
  std::vector<std::string> take_warnings() { return course_->take_warnings(); }

  void before_step() { course_->before_step(); }
  /// Saves if it is time. Throws Stopped after the save that the system asked for.
  void after_step(int64_t step);

 private:
  class Parts;

  StopSignals signals_;
  int steps_until_prepared_ = 3;  ///< the first ones make one-time choices by the clock
  std::unique_ptr<Parts> parts_;
  std::unique_ptr<DurableCourse> course_;
};

}  // namespace moonshard::checkpoint
