// An independent reference: per-sample gradients by one backward pass per sample, through
// LibTorch's autograd on the same forward pass and weights. It uses none of the engines, the rules
// or the seam. Norms, factors and sums are then computed here by their definitions, in double.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/models/model.h"
#include "runtime/optim/optimizer_options.h"
#include "runtime/privacy/clip_groups.h"
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

/// Of a model that computes in 16 bits, by nothing but its weights: they are rounded as its
/// computation rounds them, and the passes, one per sample, are in double. Activations and output
/// gradients are the reference's own, so that a mistake in those of the model shows, too.
PerSample float64_gradients(models::Model& model, const Batch& batch);

/// How far a right 16-bit model may be from float64_gradients.
///
/// Note: where the tolerance comes from. One rounding to bfloat16 is off by at most u = 2^-9, and
/// by u / sqrt(3) in the root mean square. Between the samples and a layer's sum lie about six
/// rounded tensors for each layer of the model (its input, its output and what it does in between,
/// forward and backward). Their errors are independent, so that they add up as in a random walk:
/// over L layers to sigma = u sqrt(6 L / 3). Sums may be 3 sigma off: 1.7 % to 4 % for tiny models,
/// of which 1.7 % were seen. Norms and factors over all parameters are numbers and not vectors:
/// only errors along the gradient move them, less than half of all; 2 sigma leave room for the
/// worst of a batch (0.5 % were seen). A wrong norm of 5 % is out of reach of both. Blocks with
/// norms behind their branches (more than two root-mean-square norms) get twice that: a branch then
/// counts as much as the stream, which elsewhere dampens its errors (6.4 % were seen). With norms
/// of heads as well (Gemma 3) it is three times, of which 9.6 % were seen on a GPU: such a pass
/// multiplies its roundings, and one in thirteen seeds goes beyond that on a CPU.
struct OwnPassTolerance {
  double sums = 0;  ///< of layers, and of their norms
  double norms = 0;
};
OwnPassTolerance own_pass_tolerance(const models::Model& model);

/// An optimizer by the formulas of its paper, in double: sgd without momentum, adam, adamw.
class ReferenceOptimizer {
 public:
  explicit ReferenceOptimizer(const optim::OptimizerOptions& options) : options_(options) {}
  /// The weights after a step with this gradient; once a step for each parameter.
  at::Tensor updated(const std::string& parameter, const at::Tensor& weights,
                     const at::Tensor& gradient);

 private:
  struct Moments {
    at::Tensor mean, mean_square;
    int64_t steps = 0;
  };
  optim::OptimizerOptions options_;
  std::map<std::string, Moments> moments_;
};

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
  at::Tensor factors;                         ///< [B], undefined with more than one bound
  std::vector<at::Tensor> group_norms;        ///< by group
  std::vector<at::Tensor> group_factors;      ///< by group; all the same with one bound
  std::map<std::string, at::Tensor> clipped;  ///< sum over samples of factor x gradient
  double clipped_share;                       ///< of (sample, group) pairs with a factor below 1
};
/// Parameters of each of clip_groups, and last of those that none of them matches.
std::vector<std::vector<std::string>> members_of(const std::vector<privacy::ClipGroup>& groups,
                                                 const PerSample& gradients);
Expected expected_clipping(const PerSample& gradients, const std::vector<Group>& groups,
                           const privacy::ClipOptions& options);

}  // namespace moonshard::verify
