// The engine contract. An engine sits at the models' seam during one backward pass and leaves, in
// every parameter's grad, the sum over samples of its gradient: clipped for private engines, plain
// for "none". Engines differ only in what they keep at the seam and what they do once the norms are
// known.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/profile/phases.h"

namespace moonshard::privacy {

struct ClipOptions {
  std::string mode = "none";
  double max_grad_norm = 1.0;
  double noise_multiplier = 1.0;
};

template <class T>
void add_clip_options(OptionSchema& schema);

/// What one step's clipping did. Undefined tensors for engines that do not clip.
struct ClipReport {
  at::Tensor norms;    ///< [B] gradient norm of each sample, float32 or wider
  at::Tensor factors;  ///< [B] min(1, C / (norm + 1e-6))
};

class ClipEngine : public models::GradientConsumer {
 public:
  virtual const char* name() const = 0;
  virtual bool is_private() const = 0;

  /// Before the forward pass of a batch of that size.
  virtual void begin(models::Model& model, int64_t batch_size) = 0;
  /// After the backward pass: leaves the (clipped) sums in Parameter::grad.
  virtual ClipReport finish(profile::PhaseTimer& timer) = 0;
};

struct EngineInfo {
  std::string name;
  std::string doc;
  bool is_private;
  std::vector<std::string> aliases;  ///< the seed documents' names
};

const std::vector<EngineInfo>& engines();
std::unique_ptr<ClipEngine> make_engine(const ClipOptions& options);

/// min(1, C / (norm + 1e-6)) for each sample. A sample whose norm is not finite is dropped (factor
/// 0): it has no bounded contribution.
at::Tensor clip_factors(const at::Tensor& norms, double max_grad_norm);

// ---- templates --------------------------------------------------------------------------------

template <class T>
void add_clip_options(OptionSchema& schema) {
  std::vector<std::string> names;
  std::map<std::string, std::string> aliases;
  for (const EngineInfo& engine : engines()) {
    names.push_back(engine.name);
    for (const std::string& alias : engine.aliases) aliases[alias] = engine.name;
  }
  schema.choice<T>("mode", &T::mode, names, "clipping engine; none trains without privacy")
      .value_aliases = aliases;
  schema.real<T>("max_grad_norm", &T::max_grad_norm, 1e-12, 1e12,
                 "clipping bound C of each sample's gradient norm");
  schema
      .real<T>("noise_multiplier", &T::noise_multiplier, 0, 1e6,
               "noise std over C, added once to the summed gradient")
      .aliases = {"sigma"};
}

}  // namespace moonshard::privacy
