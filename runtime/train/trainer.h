// The training step, read top-down: data, forward, per-sample losses, backward through the engine's
// seam, clip, noise, optimizer. Owns the model, the data, the engine and the optimizer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/batch.h"
#include "runtime/data/synthetic.h"
#include "runtime/models/model.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/profile/memory.h"

namespace moonshard::train {

struct StepOptions {
  int64_t grad_accum = 1;
  int64_t expected_batch_size = 0;
  bool deterministic = false;
};

template <class T>
void add_step_options(OptionSchema& schema) {
  schema.integer<T>("grad_accum", &T::grad_accum, 1, 1e6,
                    "micro-batches per step, each of batch_size samples");
  schema.integer<T>("expected_batch_size", &T::expected_batch_size, 0, 1e12,
                    "what the sum is divided by; 0 takes the samples of the step");
  schema.boolean<T>("deterministic", &T::deterministic,
                    "only operations that give the same digits every time");
}

/// What one step did.
struct StepReport {
  int64_t step = 0;  ///< 1 for the first
  double loss = 0;   ///< mean over the samples
  double lr = 0;
  int64_t batch_size = 0;  ///< samples of all micro-batches
  int64_t tokens = 0;
  std::vector<double> norms;    ///< per sample; empty for engines that do not clip
  std::vector<double> factors;  ///< per sample; empty too with per-layer clipping
  double clip_fraction = 0;     ///< share of samples whose norm was above the bound
  double clip_bound = 0;        ///< C of this step; 0 for engines that do not clip
  int64_t dropped = 0;          ///< samples without a finite gradient: they contributed nothing
  int64_t kept_bytes = 0;       ///< what the engine held across layers
  double time_ms = 0;           ///< sum of the phases
  std::vector<std::pair<std::string, double>> phases;  ///< (phase, ms), in order
  std::vector<privacy::LayerNorms> layers;             ///< when asked for, micro-batches in order
  profile::MemoryReading memory;
};

class Trainer {
 public:
  Trainer(std::shared_ptr<models::Model> model, const privacy::ClipOptions& clip,
          const optim::OptimizerOptions& optimizer, std::unique_ptr<data::SyntheticData> data,
          const StepOptions& options = {});

  /// One step on the data source's next grad_accum batches, or on a given batch, which is split
  /// into grad_accum parts. Throws OutOfMemoryError, Interrupted, and UsageError for a loss that is
  /// not finite where nothing bounds it; the model's parameters are then as they were after the
  /// last whole step.
  StepReport step();
  StepReport step(const Batch& batch);

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
  double clip_bound() const { return clipping_->bound(); }

 private:
  struct Progress;
  StepReport run_step(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer);
  void run_micro_batch(const Batch& batch, int64_t index, profile::PhaseTimer& timer,
                       Progress& progress);
  void finish_step(profile::PhaseTimer& timer, Progress& progress);
  void add_noise(int64_t denominator);
  void scale_gradients(int64_t denominator);

  std::shared_ptr<models::Model> model_;
  StepOptions options_;
  optim::OptimizerOptions optimizer_options_;
  std::shared_ptr<privacy::Clipping> clipping_;
  std::unique_ptr<privacy::ClipEngine> engine_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<data::SyntheticData> data_;
  c10::Device device_;
  bool record_layers_ = false;
  std::function<void(const models::Model&)> gradient_observer_;
  int64_t step_ = 0;
};

}  // namespace moonshard::train
