// The training step, read top-down: data, forward, per-sample losses, backward through the engine's
// seam, clip, reduce over ranks, noise, optimizer. Owns the model, the data, the engine, the
// optimizer, and how they are spread over the ranks.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/batch.h"
#include "runtime/data/synthetic.h"
#include "runtime/models/model.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/parallel.h"
#include "runtime/train/privacy_budget.h"
#include "runtime/train/rank_statistics.h"

namespace moonshard::train {

class StepGraph;
class StepWatch;
struct StepDetails;

struct StepOptions {
  int64_t grad_accum = 1;
  int64_t expected_batch_size = 0;
  bool deterministic = false;
  bool compile = false;
};

template <class T>
void add_step_options(OptionSchema& schema) {
  schema.integer<T>("grad_accum", &T::grad_accum, 1, 1e6,
                    "micro-batches per step, each of batch_size samples");
  schema.integer<T>("expected_batch_size", &T::expected_batch_size, 0, 1e12,
                    "what the sum is divided by; 0 takes the samples of the step");
  schema.boolean<T>("deterministic", &T::deterministic,
                    "only operations that give the same digits every time");
  schema.boolean<T>("compile", &T::compile,
                    "on a GPU: replay steps of equal shapes as CUDA graphs, noise and optimizer "
                    "apart");
}

/// What one step did. Counts, loss and shares are over all ranks; norms, factors, times and memory
/// are this rank's own.
struct StepReport {
  int64_t step = 0;  ///< 1 for the first
  double loss = 0;   ///< mean over the samples
  double lr = 0;
  int64_t batch_size = 0;  ///< samples of all micro-batches
  int64_t tokens = 0;
  std::vector<double> norms;      ///< per sample; empty for engines that do not clip
  std::vector<double> all_norms;  ///< of all ranks in their order, the same on each
  std::vector<double> factors;    ///< per sample; empty too with per-layer clipping
  double clip_fraction = 0;       ///< share of samples whose norm was above the bound
  double clip_bound = 0;          ///< C of this step; 0 for engines that do not clip
  int64_t privacy_steps = 0;      ///< noised updates so far, those before a resume included
  std::optional<double> epsilon;  ///< spent so far, not below the truth; none without a claim
  int64_t dropped = 0;            ///< samples without a finite gradient: they contributed nothing
  int64_t kept_bytes = 0;         ///< what the engine held across layers
  double time_ms = 0;             ///< sum of the phases
  std::vector<std::pair<std::string, double>> phases;  ///< (phase, ms), in order
  std::vector<privacy::LayerNorms> layers;             ///< when asked for, micro-batches in order
  profile::MemoryReading memory;
  sharding::ShardingMemory sharding;           ///< what the wrapper holds; 0 without one
  std::vector<comm::Traffic> traffic;          ///< what this rank took part in sending
  std::vector<profile::Span> spans;            ///< when asked for
  std::shared_ptr<const StepDetails> details;  ///< when asked for (step_watch.h)
};

struct ResumeOptions {
  bool if_any = false;      ///< nothing to resume from is no error
  bool other_seed = false;  ///< go on with this model's seed in place of the saved one
};

class Trainer {
 public:
  Trainer(std::shared_ptr<models::Model> model, const privacy::ClipOptions& clip,
          const optim::OptimizerOptions& optimizer, std::unique_ptr<data::Source> data,
          const StepOptions& options = {}, const sharding::ShardingOptions& sharding = {},
          std::shared_ptr<comm::World> world = nullptr, const PrivacyOptions& privacy = {});
  ~Trainer();

  /// One step on the data source's next batches, or on a given batch, which is split into
  /// grad_accum parts; after a given batch no epsilon is claimed. Throws UsageError when the budget
  /// is spent, OutOfMemoryError, Interrupted, and UsageError for a loss that is
  /// not finite where nothing bounds it; the model's parameters are then as they were after the
  /// last whole step. A private step updates its parameters as their gradients become whole; should
  /// it fail after the first of them, which it takes care not to, later steps are refused until a
  /// checkpoint is resumed.
  StepReport step();
  StepReport step(const Batch& batch);

  /// Parameters whole in the model, until the next step; all ranks together.
  void gather() { parallel_->expose_parameters(); }

  /// Writes a checkpoint of everything that the next step depends on, as a folder in `folder` that
  /// is there as a whole or not at all. All ranks together; an error on one is an error on all.
  /// Returns the checkpoint's path. docs/checkpoints.md has the format.
  std::filesystem::path save(const std::filesystem::path& folder);
  /// Goes on from a checkpoint, or from the newest in a folder of them: of any number of ranks and
  /// any sharding. Nothing is changed when it does not fit. Returns its step; nothing when there is
  /// none and options.if_any allows it.
  std::optional<int64_t> resume(const std::filesystem::path& where,
                                const ResumeOptions& options = {});

  /// Keep the order of events in the reports.
  void record_timeline(bool on);
  /// Keep, in the reports, who owned which memory and how long layers' norms and collectives took.
  /// Such a step is a little slower than others.
  void record_details(bool on);
  /// The next steps go into a Chrome trace, written when they are done. SIGUSR2 asks for the same.
  void trace(int64_t steps, const std::filesystem::path& file);
  /// Keep each layer's norms in the reports.
  void record_layers(bool on) { record_layers_ = on; }
  /// Called in every step with the gradients as the optimizer will use them: clipped, noised,
  /// divided.
  void observe_gradients(std::function<void(const models::Model&)> observer) {
    gradient_observer_ = std::move(observer);
  }

  models::Model& model() { return *model_; }
  const privacy::ClipEngine& engine() const { return *engine_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  const sharding::Parallel& parallel() const { return *parallel_; }
  const sharding::ShardingOptions& sharding_options() const { return sharding_options_; }
  const comm::World& world() const { return *world_; }
  const std::vector<std::unique_ptr<models::ParamLayer>>& layers() const {
    return model_->layers();
  }
  /// Every rank's numbers [n] as [ranks, n]; all ranks together, between steps.
  at::Tensor of_all_ranks(const at::Tensor& own) const { return statistics_.of_all(own); }
  double clip_bound() const { return clipping_->bound(); }
  const privacy::ClipOptions& clip_options() const { return clipping_->options(); }
  /// What the run has spent; with the reason, when another trainer has updated the model since.
  const PrivacyBudget& budget() const;
  const data::Source* data() const { return data_.get(); }
  /// Noised updates so far, of all runs that this one goes on from.
  int64_t privacy_steps() const { return privacy_steps_; }

 private:
  struct Progress;
  StepReport run_step(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer);
  void begin_watch();
  void run_micro_batches(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer,
                         Progress& progress);
  bool runs_as_graph();
  bool run_graph(const Batch& batch, profile::PhaseTimer& timer, Progress& progress);
  bool capture_graph(const Batch& batch, Progress& progress);
  void run_micro_batch(const Batch& batch, bool stand_in, int64_t index, profile::PhaseTimer& timer,
                       Progress& progress);
  void check_losses(const at::Tensor& losses, const LossSums& sums);
  void take_expected_batch_size();
  void take_model();
  void own_model();
  int64_t step_denominator();
  optim::NoiseSpec step_noise(int64_t denominator) const;
  void add_count_noise(at::Tensor& count, double std) const;
  void finish_step(profile::PhaseTimer& timer, Progress& progress);
  void show_gradients(const optim::NoiseSpec& noise, profile::PhaseTimer& timer);
  void report_norms(const at::Tensor& norms, Progress& progress);

  std::shared_ptr<models::Model> model_;
  StepOptions options_;
  optim::OptimizerOptions optimizer_options_;
  sharding::ShardingOptions sharding_options_;
  std::shared_ptr<comm::World> world_;
  mutable PrivacyBudget budget_;
  std::shared_ptr<privacy::Clipping> clipping_;
  std::unique_ptr<privacy::ClipEngine> engine_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<data::Source> data_;
  c10::Device device_;
  std::unique_ptr<sharding::Parallel> parallel_;
  RankStatistics statistics_;
  std::shared_ptr<const kernels::ChaChaKey> secret_;  ///< of the noise, with option secure
  int64_t serial_;  ///< the how many-th of this process: ranks compare it
  bool record_layers_ = false;
  std::unique_ptr<StepWatch> watch_;
  std::unique_ptr<StepGraph> graph_;  ///< with option compile
  std::function<void(const models::Model&)> gradient_observer_;
  int64_t step_ = 0, privacy_steps_ = 0;
  bool half_resumed_ = false;  ///< a resume failed on the way: weights of two states
  bool half_updated_ = false;  ///< the same of a step; see the note in step_update.h
};

}  // namespace moonshard::train
