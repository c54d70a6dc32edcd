// What a durable run does, and in which order: the decisions of durable.h without trainer, threads
// and collectives. Needs no LibTorch: DurableRun passes in the trainer's parts, a simulation its
// own.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/accountant/epsilon.h"
#include "runtime/base/errors.h"
#include "runtime/checkpoint/save_order.h"
#include "runtime/checkpoint/spent_file.h"

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

/// What a course needs of the run that it is of. Calls that say "together" are made by all ranks.
class DurableParts {
 public:
  virtual ~DurableParts() = default;
  /// Together.
  virtual AllOrNone ranks() = 0;
  virtual bool has_secret_noise() const = 0;
  /// Steps of an earlier process, the state after which is lost. Before resume().
  virtual void charge(const accountant::History& lost) = 0;
  /// Together. Returns its step; throws IoError when the checkpoint is damaged.
  virtual int64_t resume(const std::filesystem::path& checkpoint) = 0;
  /// With the step that is about to begin; empty when there is no claim.
  virtual std::optional<accountant::History> account_after_step() const = 0;
  /// Together.
  virtual std::filesystem::path save(const std::filesystem::path& folder,
                                     const SaveOptions& options) = 0;
  virtual std::vector<SaveOutcome> ended_saves() = 0;
  /// Together; the same answer on all ranks.
  virtual bool must_stop() = 0;
  /// Of a clock that does not jump.
  virtual double seconds() const = 0;
};

class DurableCourse {
 public:
  /// Resumes from the newest checkpoint of the folder that is whole, if there is any. Together. The
  /// parts must outlive it.
  DurableCourse(DurableParts& parts, std::filesystem::path folder, const DurableOptions& options);

  std::optional<int64_t> resumed_step() const { return resumed_step_; }
  std::vector<std::string> take_warnings();

  void before_step();
  /// Saves if it is time. Throws Stopped after the save that the system asked for.
  void after_step(int64_t step);

 private:
  void charge_lost_steps(AllOrNone& ranks);
  void resume_newest(AllOrNone& ranks);

  DurableParts& parts_;
  std::filesystem::path folder_;
  DurableOptions options_;
  std::unique_ptr<SpentFile> spent_;  ///< on rank 0 of a run with secret noise
  std::optional<int64_t> resumed_step_;
  std::vector<std::string> warnings_;
};

}  // namespace moonshard::checkpoint
