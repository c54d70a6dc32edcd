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
#include "runtime/profile/phases.h"

namespace moonshard::privacy {

template <class T>
void add_clip_options(OptionSchema& schema);

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

/// A micro-batch, as far as engines care.
struct MicroBatch {
  int64_t samples = 0;
  int64_t tokens_per_sample = 1;
  int64_t index = 0;  ///< within the step
  bool record_layers = false;
  /// The most of any rank's micro-batches, 0 without others: what all ranks must decide alike is
  /// decided from these.
  int64_t most_samples = 0, most_tokens_per_sample = 0;
  /// A rank without samples of its own keeps the others' pace with one that counts for nothing.
  bool stand_in = false;
};

/// What becomes of squared norms [B] before they are turned into factors.
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
  /// For measuring what a reduction of norms over ranks costs. It mixes samples of different ranks:
  /// what is trained so is not private.
  virtual void reduce_norms_by(NormReduction) {}
  /// Bytes that the engine held across layers at its peak in this step.
  virtual int64_t kept_bytes() const { return 0; }
};

using EngineMaker =
    std::function<std::unique_ptr<ClipEngine>(const ClipOptions&, std::shared_ptr<Clipping>)>;

struct EngineInfo {
  std::string name;
  std::string doc;
  bool is_private;
  std::vector<std::string> aliases;  ///< the seed documents' names
  EngineMaker make;
  bool built_in = false;
};

/// All engines: the built-in ones, then those registered since.
std::vector<EngineInfo> engines();
/// Adds an engine, or replaces one that was registered before. Built-in names are refused.
void register_engine(EngineInfo engine);
/// Takes a registered engine away again. Built-in ones stay.
void unregister_engine(const std::string& name);

std::unique_ptr<ClipEngine> make_engine(const ClipOptions& options,
                                        std::shared_ptr<Clipping> clipping);

/// Names and aliases for option schemas, looked up when they are needed: engines may be added late.
std::vector<std::string> engine_names();
std::map<std::string, std::string> engine_aliases();

// ---- templates --------------------------------------------------------------------------------

template <class T>
void add_clip_options(OptionSchema& schema) {
  Option& mode =
      schema.choice<T>("mode", &T::mode, {}, "clipping engine; none trains without privacy");
  mode.live_choices = &engine_names;
  mode.live_aliases = &engine_aliases;
  schema.choice<T>(
      "clipping", &T::clipping, {"flat", "per_layer", "automatic", "adaptive"},
      "how norms become factors: one bound, one per layer, normalising, or a quantile");
  schema.real<T>("max_grad_norm", &T::max_grad_norm, 1e-12, 1e12,
                 "clipping bound C of each sample's gradient norm; adaptive clipping starts there");
  schema
      .real<T>("noise_multiplier", &T::noise_multiplier, 0, 1e6,
               "noise std over C, added once to the summed gradient")
      .aliases = {"sigma"};
  schema.real<T>("stability", &T::stability, 1e-9, 1e6,
                 "automatic clipping: gamma in C / (norm + gamma)");
  schema.real<T>("target_quantile", &T::target_quantile, 0, 1,
                 "adaptive clipping: share of samples that should stay unclipped");
  schema.real<T>("quantile_lr", &T::quantile_lr, 0, 10, "adaptive clipping: how fast C moves");
  schema.real<T>("quantile_noise", &T::quantile_noise, 0, 1e9,
                 "adaptive clipping: noise std of the count; 0 takes batch / 20");
  schema.integer<T>("tile_size", &T::tile_size, 0, 1e6,
                    "flash norms: positions or rows at a time; 0 chooses");
  schema.choice<T>("flash_algorithm", &T::flash_algorithm, {"auto", "input_length", "width"},
                   "flash norms: by tiles of positions, by tiles of width, or the cheaper");
  schema.integer<T>(
      "memory_budget_mb", &T::memory_budget_mb, 0, 1e9,
      "engine auto: what it may keep across layers; 0: half of what a GPU has beside the "
      "weights and a copy of them, elsewhere no limit");
}

}  // namespace moonshard::privacy
