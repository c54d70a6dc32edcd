// An independent reference: per-sample gradients by one backward pass per sample, through
// LibTorch's autograd on the same forward pass and weights. It uses none of the engines, the rules
// or the seam. Norms, factors and sums are then computed here by their definitions, in double.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/privacy/clipping.h"

namespace moonshard::verify {

/// By parameter name: [B, shape], double. Frozen parameters are left out.
using PerSample = std::map<std::string, at::Tensor>;

PerSample batch_of_one_gradients(models::Model& model, const Batch& batch);

/// The same for 16-bit computation. There a batch of another size rounds differently, and a single
/// different rounding early in the network changes all gradients by about 1e-2: no two passes agree
/// to 1e-3, whatever the engine. So the activations and output gradients are those of a pass over
/// the given micro-batches, and what LibTorch differentiates is each layer by itself, one sample at
/// a time, in double.
PerSample layerwise_gradients(models::Model& model, const std::vector<Batch>& micro_batches);

/// Layers that share parameters, and those parameters.
struct Group {
  std::string name;  ///< of its first layer
  std::vector<const models::ParamLayer*> layers;
  std::vector<std::string> parameters;
};
std::vector<Group> groups_of(const models::Model& model);

/// Norm of each sample over these parameters [B], double.
at::Tensor norms_of(const PerSample& gradients, const std::vector<std::string>& parameters);

/// What a private step must find.
struct Expected {
  at::Tensor norms;                           ///< [B]
  at::Tensor factors;                         ///< [B], undefined with per-layer clipping
  std::vector<at::Tensor> group_norms;        ///< by group
  std::vector<at::Tensor> group_factors;      ///< by group; all the same but for per-layer clipping
  std::map<std::string, at::Tensor> clipped;  ///< sum over samples of factor x gradient
  double clipped_share;                       ///< of (sample, group) pairs with a factor below 1
};
Expected expected_clipping(const PerSample& gradients, const std::vector<Group>& groups,
                           const privacy::ClipOptions& options);

}  // namespace moonshard::verify
