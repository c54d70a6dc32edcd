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

/// What one step did.
struct StepReport {
  int64_t step = 0;  ///< 1 for the first
  double loss = 0;   ///< mean over the batch
  int64_t batch_size = 0;
  int64_t tokens = 0;
  std::vector<double> norms;  ///< per sample; empty for engines that do not clip
  double clip_fraction = 0;   ///< share of samples whose norm was above the bound
  double time_ms = 0;         ///< sum of the phases
  std::vector<std::pair<std::string, double>> phases;  ///< (phase, ms), in order
  profile::MemoryReading memory;
};

class Trainer {
 public:
  Trainer(std::shared_ptr<models::Model> model, const privacy::ClipOptions& clip,
          const optim::OptimizerOptions& optimizer, std::unique_ptr<data::SyntheticData> data);

  /// One step on the data source's next batch, or on a given one. Throws OutOfMemoryError,
  /// Interrupted; the model's parameters are then as they were after the last whole step.
  StepReport step();
  StepReport step(const Batch& batch);

  models::Model& model() { return *model_; }
  const privacy::ClipEngine& engine() const { return *engine_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  StepReport run_step(const Batch& batch, profile::PhaseTimer& timer);
  void add_noise();
  void scale_gradients(int64_t denominator);

  std::shared_ptr<models::Model> model_;
  privacy::ClipOptions clip_;
  std::unique_ptr<privacy::ClipEngine> engine_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<data::SyntheticData> data_;
  c10::Device device_;
  int64_t step_ = 0;
};

}  // namespace moonshard::train
