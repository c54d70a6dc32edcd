// The training step, read top-down: data, forward, per-sample losses, backward through the engine's
// seam, clip, reduce over ranks, noise, optimizer. Owns the model, the data, the engine, the
// optimizer, and how they are spread over the ranks. What differs with and without privacy is in
// step_finish.h; checkpoints are made of it by runtime/checkpoint.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/core/batch.h"
#include "runtime/data/source.h"
#include "runtime/models/model.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/account.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/sharding/parallel.h"
#include "runtime/train/step_options.h"
#include "runtime/train/step_report.h"

namespace moonshard::train {

// How a step splits the batch that it is given.

/// `count` parts in order, as even as it goes; a part may be empty.
inline std::vector<Batch> micro_batches(const Batch& batch, int64_t count) {
  std::vector<Batch> parts;
  const int64_t samples = batch.size();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = samples * i / count;
    parts.push_back(batch.slice(first, samples * (i + 1) / count - first));
  }
  return parts;
}

class StepFinish;
class StepGraph;
class StepWatch;
struct StepProgress;

/// What a trainer is put together from.
struct TrainerParts {
  std::shared_ptr<models::Model> model{};
  privacy::ClipOptions clip{};
  optim::OptimizerOptions optimizer{};
  std::unique_ptr<data::Source> data{};  ///< null: every step is given its batch
  StepOptions step{};
  sharding::ShardingOptions sharding{};
  std::shared_ptr<comm::World> world{};  ///< null: the one that the sharding options name
  privacy::PrivacyOptions privacy{};
  std::shared_ptr<privacy::StepHooks> hooks{};  ///< null: none
};

/// Where a run stands, besides its weights and its optimizer's state.
struct RunState {
  int64_t step = 0;
  std::optional<int64_t> seed;  ///< taken over by a run whose own nobody gave
  std::optional<int64_t> data_position;
  double clip_bound = 0;
  privacy::SpentSteps spent;
  std::string checkpoint;  ///< seal of the one that it was last saved to, or resumed from
};

class Trainer {
 public:
  explicit Trainer(TrainerParts parts);
  ~Trainer();

  /// One step on the data source's next batches, or on a given batch, which is split into
  /// grad_accum parts; after a given batch no epsilon is claimed. Throws UsageError when the budget
  /// is spent or, without privacy, when a loss is not finite; OutOfMemoryError; Interrupted. The
  /// model's parameters are then as they were after the last whole step. A private step updates its
  /// parameters as their gradients become complete; if it fails after the first of them (see
  /// step_update.h), later steps are refused until a checkpoint is resumed.
  StepReport step();
  StepReport step(const Batch& batch);

  /// Parameters whole in the model, until the next step; all ranks together.
  void gather() { parallel_->expose_parameters(); }

  // ---- for checkpoints --------------------------------------------------------------------------
  RunState state() const;
  /// What failed on its way and left weights of two states: "step", "resume"; empty when they are
  /// those of a whole step.
  std::string half_done() const;
  /// Weights and optimizer state are about to be replaced. Steps are refused until restore().
  void begin_restore() { half_restored_ = true; }
  /// They have been replaced: the next step goes on from this state.
  void restore(const RunState& state);
  /// Steps of an earlier process, the state after which is lost. Before restore().
  void charge(const accountant::History& lost) { account_.charge(lost); }
  /// The state that is now the trainer's is on the disk, under that seal.
  void note_checkpoint(std::string seal) { checkpoint_ = std::move(seal); }

  /// Keep the order of events in the reports.
  void record_timeline(bool on);
  /// Keep, in the reports, who owned which memory and how long layers' norms and collectives took.
  /// Such a step is a little slower than others.
  void record_details(bool on);
  /// Frees the memory of the step that is a CUDA graph, if there is one; equal steps make another.
  void drop_graph();
  /// The next steps go into a Chrome trace, written when they are done. SIGUSR2 does the same.
  void trace(int64_t steps, const std::filesystem::path& file);
  /// Whether the next step goes into one.
  bool traces_next_step();
  /// Keep each layer's norms in the reports.
  void record_layers(bool on) { record_layers_ = on; }
  /// Called in every step with the gradients as the optimizer will use them: clipped, noised,
  /// divided.
  void observe_gradients(std::function<void(const models::Model&)> observer) {
    gradient_observer_ = std::move(observer);
  }

  models::Model& model() { return *parts_.model; }
  const models::Model& model() const { return *parts_.model; }
  const privacy::ClipEngine& engine() const { return *engine_; }
  optim::Optimizer& optimizer() { return optimizer_; }
  const optim::Optimizer& optimizer() const { return optimizer_; }
  const optim::OptimizerOptions& optimizer_options() const { return parts_.optimizer; }
  sharding::Parallel& parallel() { return *parallel_; }
  const sharding::Parallel& parallel() const { return *parallel_; }
  const sharding::ShardingOptions& sharding_options() const { return parts_.sharding; }
  comm::World& world() { return *parts_.world; }
  const comm::World& world() const { return *parts_.world; }
  const std::vector<std::unique_ptr<models::ParamLayer>>& layers() const {
    return parts_.model->layers();
  }
  /// Every rank's numbers [n] as [ranks, n]; all ranks together, between steps.
  at::Tensor of_all_ranks(const at::Tensor& own) const { return statistics_.of_all(own); }
  double clip_bound() const { return clipping_->bound(); }
  const privacy::ClipOptions& clip_options() const { return clipping_->options(); }
  const privacy::Account& account() const { return account_; }
  const data::Source* data() const { return parts_.data.get(); }
  /// Private updates so far, of all runs that this one goes on from.
  int64_t privacy_steps() const { return account_.private_steps(); }

 private:
  StepReport run_step(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer);
  void begin_watch();
  int64_t plain_update_bytes() const;
  void compare_ranks() const;
  void draw_secrets();
  void check_runnable() const;
  void tell_counts(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer);
  void plan_update(StepProgress& progress);
  void run_micro_batches(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer,
                         StepProgress& progress);
  int64_t first_sample(const StepProgress& progress);
  void update_early(profile::PhaseTimer& timer, StepProgress& progress);
  /// One of `count` micro-batches, between what the wrapper does before and after it.
  void pass_micro_batch(const Batch& batch, size_t index, size_t count, profile::PhaseTimer& timer,
                        StepProgress& progress);
  privacy::MicroBatch engine_view(const Batch& batch, size_t index, size_t count);
  void run_micro_batch(const Batch& batch, const privacy::MicroBatch& micro,
                       profile::PhaseTimer& timer, StepProgress& progress);
  void finish_step(profile::PhaseTimer& timer, StepProgress& progress);
  void show_gradients(profile::PhaseTimer& timer, StepProgress& progress);
  void clip_globally(StepProgress& progress);
  // In trainer_graph.cpp:
  int64_t possible_way(const std::vector<Batch>& drawn);
  bool run_graph(const std::vector<Batch>& drawn, profile::PhaseTimer& timer,
                 StepProgress& progress);
  bool capture_graph(const std::vector<Batch>& batches, StepProgress& progress);
  bool has_room_for_graph(const profile::MemoryReading& memory) const;
  void observe_for_graph(double host_share, const StepProgress& progress);

  TrainerParts parts_;
  privacy::StepHooks& hooks_;
  c10::Device device_;
  int64_t id_;  ///< creation order in this process
  privacy::Account account_;
  RandomWords model_draws_;  ///< what the model draws for its samples
  std::shared_ptr<privacy::Clipping> clipping_;
  std::unique_ptr<privacy::ClipEngine> engine_;
  optim::Optimizer optimizer_;
  std::unique_ptr<sharding::Parallel> parallel_;
  RankStatistics statistics_;
  at::Tensor own_squares_;  ///< norm_reduce = sum: of the micro-batch, before the sum
  std::unique_ptr<StepFinish> finish_;
  std::unique_ptr<StepWatch> watch_;
  std::unique_ptr<StepGraph> graph_;  ///< unless option compile is no
  bool record_layers_ = false;
  std::function<void(const models::Model&)> gradient_observer_;
  int64_t step_ = 0;
  std::string checkpoint_;
  bool half_restored_ = false;  ///< a restore failed on its way: weights of two states
  bool half_updated_ = false;   ///< the same of a step; see the note in step_update.h
};

}  // namespace moonshard::train
