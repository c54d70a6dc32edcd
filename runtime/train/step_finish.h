// What differs at the end of a step with and without privacy: what it is divided by and its noise,
// when its losses are looked at, what is counted and reported. One of the two is chosen when a
// trainer is made.
#pragma once

#include <memory>

#include "runtime/privacy/account.h"
#include "runtime/train/step_report.h"
#include "runtime/train/step_update.h"

namespace moonshard::train {

/// What the parts of a step hand on to its end. For the sources of this folder.
struct StepProgress {
  StepReport report;
  int64_t samples = 0;  ///< of this rank so far
  int64_t denominator = 0;
  optim::NoiseSpec noise;                          ///< of the summed gradients, and their division
  std::vector<at::Tensor> losses, norms, factors;  ///< [B] each, by micro-batch
  std::vector<at::Tensor> squares;                 ///< before their sum over ranks, if there is one
  LossSums sums;                                   ///< over all ranks, once they are known
  bool has_sums = false;
  bool is_last = false;  ///< the micro-batch that runs is the step's last
  std::optional<StepUpdate> update;
  bool replayed = false;           ///< by a graph, whose memory has the gradients
  int64_t replayed_gradients = 0;  ///< bytes of them
  std::vector<comm::Traffic> replayed_traffic;
};

class StepFinish {
 public:
  virtual ~StepFinish() = default;

  /// Whether parts may be updated as soon as their sums are complete. Not if a non-finite loss can
  /// still reject the step.
  virtual bool updates_early() const = 0;
  /// Without updates_early, where updates run beside the step (Parallel::works_beside): all losses
  /// of the step are known, and no weight has changed. Waits for the device and for the other
  /// ranks, and throws what would reject the step. Afterwards parts may be updated early.
  virtual void check_losses(StepProgress&) {}
  /// Phase name of the update in timings, without a gradient observer.
  virtual const char* update_phase() const = 0;

  /// Throws UsageError if a step of so many samples (of all ranks) is not meaningful.
  virtual void check_samples(int64_t samples) const = 0;
  virtual optim::NoiseSpec noise(int64_t step, int64_t denominator) const = 0;

  // ---- in this order ---------------------------------------------------------------------------
  /// Gradients are being summed over ranks; no weight that was not updated early has changed.
  virtual void before_update(StepProgress& progress, profile::PhaseTimer& timer) = 0;
  /// The weights have changed.
  virtual void count(StepReport& report) = 0;
  /// All work of the step has been launched: from here on the host may wait for it.
  virtual void after_update(StepProgress& progress, profile::PhaseTimer& timer) = 0;
  /// The phases have ended.
  virtual void report(StepProgress& progress) = 0;
};

/// The trainer's own parts; they outlive the finish.
struct FinishParts {
  const comm::World& world;
  RankStatistics& statistics;
  sharding::Parallel& parallel;
  privacy::Clipping& clipping;
  privacy::Account& account;
  privacy::StepHooks& hooks;
  const models::Model& model;
};

std::unique_ptr<StepFinish> make_plain_finish(const FinishParts& parts);
std::unique_ptr<StepFinish> make_private_finish(const FinishParts& parts);

/// The micro-batches' vectors as one; undefined when there is none.
at::Tensor joined(const std::vector<at::Tensor>& parts);

}  // namespace moonshard::train
