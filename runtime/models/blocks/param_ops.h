// Parametered operations: autograd functions whose backward gives the input's gradient and hands
// (layer, a, g) to the seam's consumer. Weights are read from the layer when they are needed, in
// forward and in backward, and never saved in the graph: a sharded weight may come and go between
// the two. Each runs in the dtype of its input, which models cast where a block or a layer outside
// of blocks begins (ParamLayer::compute_type); weights kept otherwise are cast to it.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/gated/gated.h"
#include "runtime/models/parameter.h"
#include "runtime/profile/timeline.h"

namespace moonshard::models {

// Which form a layer takes: plain operations that autograd differentiates, or one autograd function
// around fused kernels. The plain form defines the numbers; it runs on the CPU, in float64, and
// wherever the kernels do not.

/// `kernel_runs`: whether the operation's kernel supports its tensors.
bool takes_fused_form(bool kernel_runs);

/// For tests of the fused graph without a GPU: while it lives, layers take the fused form
/// everywhere, and the operations' references replace the kernels.
class FusedByReferences {
 public:
  FusedByReferences();
  ~FusedByReferences();
  FusedByReferences(const FusedByReferences&) = delete;
  FusedByReferences& operator=(const FusedByReferences&) = delete;

 private:
  bool before_;
};

/// x [B, …, d_in] -> [B, …, d_out]; weight [d_out, d_in]. With its adapter, where it has one.
at::Tensor linear(const at::Tensor& x, ParamLayer& layer);

/// Several layers of one input, in the order in which they run; backward goes the other way.
/// On a GPU cheaper than each by itself: they sum up the input's gradient as they compute it.
std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<ParamLayer*>& layers);

/// The same of f(gate) * up, where gating_is_fused is true: the factors are kept, the product is
/// made again in backward. Takes the factors over: the last backward pass writes into them.
at::Tensor gated_linear(const at::Tensor& gate, const at::Tensor& up,
                        kernels::GateFunction function, ParamLayer& layer);
bool gating_is_fused(const Seam& seam, const at::Tensor& gate);

/// images [B, C, H, W] -> [B, (H/p)(W/p), D], patches in row order; weight [D, C, p, p].
at::Tensor patch_embedding(const at::Tensor& images, ParamLayer& layer);

/// ids [B, …] int64 -> [B, …, d] in the layer's compute dtype; weight [n, d]. Throws UsageError for
/// an id outside 0 … n-1.
at::Tensor embedding(const at::Tensor& ids, ParamLayer& layer);

/// x [B, T, d] + table; weight [1, T, d].
at::Tensor add_positions(const at::Tensor& x, ParamLayer& layer);

/// For custom layers: what their autograd function's backward calls with what their gradient
/// rule needs.
void hand_over(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g);

/// The same where the backward has each sample's gradient [B, shape] itself and the consumer takes
/// it (GradientConsumer::takes_rows).
void hand_over_rows(const ParamLayer& layer, const at::Tensor& weight_rows,
                    const at::Tensor& bias_rows);

/// The same where the backward forms one sample's gradient of the weight after the other
/// (GradientConsumer::takes_samples).
void hand_over_samples(const ParamLayer& layer, int64_t samples, const AddSample& add);

/// For custom layers, too: around their forward, so that the parameters are in place on
/// every kind of wrapper. `output` is what the layer returned; inside of an autograd function,
/// where nothing shows it, `in_graph` says whether a backward of this use will come.
void before_forward(const ParamLayer& layer);
void after_forward(const ParamLayer& layer, const at::Tensor& output);
void after_forward(const ParamLayer& layer, bool in_graph);

/// The same around their backward: parameters are in place while it lives.
class BackwardUse {
 public:
  explicit BackwardUse(const ParamLayer& layer);
  ~BackwardUse() noexcept(false);
  BackwardUse(const BackwardUse&) = delete;
  BackwardUse& operator=(const BackwardUse&) = delete;

 private:
  const ParamLayer& layer_;
  int exceptions_;
  profile::TraceZone zone_;
};

}  // namespace moonshard::models
