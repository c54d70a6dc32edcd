// The engine contract. An engine sits at the models' seam during the backward pass of one
// micro-batch and adds, to every parameter's grad, the sum over samples of its gradient: clipped
// for private engines, plain for "none". Engines differ only in what they keep at the seam and what
// they do once the norms are known.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/privacy/clipping.h"
#include "runtime/privacy/step_hooks.h"
#include "runtime/profile/phases.h"

namespace moonshard::privacy {

/// Norms and factors of one layer (or of layers that share a weight), kept only when asked for.
struct LayerNorms {
  std::string layer;
  at::Tensor norms;    ///< [B]
  at::Tensor factors;  ///< [B], per-layer clipping only
};

/// What the clipping of one micro-batch did. Undefined tensors for engines that do not clip.
struct ClipReport {
  at::Tensor norms;    ///< [B] gradient norm of each sample, double
  at::Tensor factors;  ///< [B]; per-layer clipping has one vector per layer instead
  std::vector<LayerNorms> layers;
};

/// A micro-batch, as engines see it.
struct MicroBatch {
  int64_t samples = 0;
  int64_t tokens_per_sample = 1;
  int64_t index = 0;  ///< within the step
  bool record_layers = false;
  /// The most of any rank's micro-batches, 0 without others: decisions that all ranks must share
  /// are based on these.
  int64_t most_samples = 0, most_tokens_per_sample = 0;
  /// Batch::counted: rows that count nowhere get the factor 0. Undefined: all are samples.
  at::Tensor counted{};
  /// Other ranks, a later micro-batch or the host need the sums: no update takes kept rows as they
  /// are.
  bool needs_sums = false;
  int64_t count = 1;  ///< micro-batches of the step
  int rank = 0, ranks = 1;
  bool takes_other_plan = false;  ///< as the first rank's engine has said before the step
};

/// What a step that was not replayed has shown.
struct ObservedStep {
  double ms = 0;
  int64_t tokens = 0;   ///< of all ranks
  int64_t dropped = 0;  ///< samples that contribute nothing, which saves time
};

/// Applied to squared norms [B] before they become factors.
using NormReduction = std::function<at::Tensor(const at::Tensor& squares)>;

class ClipEngine : public models::GradientConsumer {
 public:
  virtual const char* name() const = 0;
  virtual bool is_private() const = 0;

  /// Before the forward pass.
  virtual void begin(models::Model& model, const MicroBatch& micro) = 0;
  /// After begin: the graph must be kept for a second backward pass of the same losses.
  virtual bool needs_second_pass() const { return false; }
  /// After the backward pass: norms and factors, and the sum of all that was kept.
  virtual ClipReport clip(profile::PhaseTimer& timer) = 0;
  /// After the second backward pass.
  virtual void end_second_pass() {}
  /// Whether the next steps compare plans of the engine: they differ, and none is captured. Ranks
  /// wait for each other, so that they must try alike: the first one does, and tells the others
  /// before each step which plan it takes.
  virtual bool tries_plans() const { return false; }
  virtual bool takes_other_plan() const { return false; }
  virtual void observe_step(const ObservedStep&) {}
  /// For measuring the cost of a reduction of norms over ranks. It mixes samples of different
  /// ranks: such training is not private.
  virtual void reduce_norms_by(NormReduction) {}
  /// Hooks for norms, factors and gradients; they outlive the engine.
  virtual void use_hooks(StepHooks&) {}
  /// Bytes that the engine held across layers at its peak in this step.
  virtual int64_t kept_bytes() const { return 0; }
};

using EngineMaker =
    std::function<std::unique_ptr<ClipEngine>(const ClipOptions&, std::shared_ptr<Clipping>)>;

/// Adds an engine, or replaces one that was registered before. Built-in names are refused.
/// engine_names.h lists what there is.
void register_engine(const EngineDescription& description, EngineMaker make);
/// Removes a registered engine. Built-in ones stay.
void unregister_engine(const std::string& name);

std::unique_ptr<ClipEngine> make_engine(const ClipOptions& options,
                                        std::shared_ptr<Clipping> clipping);

}  // namespace moonshard::privacy
