// Parameters and the seam. A model is built of parametered layers; each layer's backward hands what
// a gradient rule needs to the one consumer that is attached from outside: a clipping engine, or
// plain accumulation. That is the whole coupling between models and privacy.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace moonshard::models {

struct Parameter {
  std::string name;    ///< as in Hugging Face files, e.g. "model.layers.0.mlp.up_proj.weight"
  uint32_t index = 0;  ///< position in the model; names its noise stream
  at::Tensor value;
  /// Of parts that an optimizer updates: where defined, `value` is the high half of float32 master
  /// weights and this the low one (kernels/split_float/split_float.h).
  at::Tensor low;
  at::Tensor grad;  ///< summed over samples, float32 or wider; undefined between steps
  /// A part of the gradient that is not summed up yet: sum over b of row_factors[b] x rows[b], rows
  /// [B, shape of value] in any float dtype, factors [B] float32, or one for each 128 elements
  /// (kernels/fused_update/fused_update.h). A factor of 0 leaves the row out even where it is not
  /// finite. Undefined when there is none.
  at::Tensor rows, row_factors;
  bool trainable = true;
};

/// The set of layer kinds is open: a name with a registered gradient rule (privacy/layer_rules.h).
namespace kinds {
inline constexpr const char* kLinear = "linear";
inline constexpr const char* kPatchEmbedding = "patch_embedding";
inline constexpr const char* kEmbedding = "embedding";
inline constexpr const char* kPositionTable = "position_table";
inline constexpr const char* kRmsNorm = "rms_norm";
inline constexpr const char* kLayerNorm = "layer_norm";
}  // namespace kinds

struct Seam;

/// One use of parameters in the forward pass. Two layers may share a parameter (tied weights).
struct ParamLayer {
  std::string name;
  std::string kind = kinds::kLinear;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null when the layer has none
  int64_t padding_id = -1;    ///< of an embedding: the row that is never trained; -1 means none
  uint32_t index = 0;         ///< position in the model's list of layers
  int64_t block = -1;         ///< the block it belongs to; -1 for what is outside of blocks
  /// What costs are predicted from before the shapes are known; both may be left as they are.
  const ParamLayer* same_input_as = nullptr;  ///< the first layer that reads the same input
  bool one_position = false;                  ///< one position per sample, however long it is
  bool by_samples = false;  ///< its backward never has g of all positions (AddSample)
  Seam* seam = nullptr;
  /// Of a linear layer with an adapter (Hu et al., "LoRA", 2021): y = W x + scale * up(down(x)).
  /// Both are linear layers of the model themselves, without bias.
  ParamLayer *lora_down = nullptr, *lora_up = nullptr;
  double lora_scale = 0;
  double lora_dropout = 0;  ///< probability that a number of the adapter's input is dropped
  /// Where given, it computes in this dtype instead of the seam's.
  std::optional<at::ScalarType> own_type = {};

  bool trainable() const { return weight->trainable || (bias != nullptr && bias->trainable); }
  inline at::ScalarType compute_type() const;
};

/// Adds one sample's gradient of a layer's weight to a sum in the weight's shape, float32 or wider;
/// an undefined one is made.
using AddSample = std::function<void(int64_t sample, at::Tensor& sum)>;

/// Receives, for every parametered layer in backward order:
///   linear, patch_embedding  a = input [B, …, d_in],  g = output gradient [B, …, d_out]
///   embedding                a = ids [B, …] int64,    g = output gradient [B, …, d]
///   position_table           a = undefined,           g = output gradient [B, T, d]
///   rms_norm, layer_norm     a = normalised input [B, …, d] (before the weight), g likewise
/// g belongs to the sum of the per-sample losses, so that row b of g is sample b's own gradient.
class GradientConsumer {
 public:
  virtual ~GradientConsumer() = default;
  virtual void consume(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) = 0;

  /// Whether the layer may pass on each sample's gradient, where its backward computes it anyway,
  /// instead of (a, g).
  virtual bool takes_rows(const ParamLayer&) const { return false; }
  /// Each sample's gradient of the weight and of the bias [B, shape], float32 or wider; undefined
  /// where the layer has none or it is frozen. Only after takes_rows returned true.
  virtual void consume_rows(const ParamLayer&, const at::Tensor& /*weight_rows*/,
                            const at::Tensor& /*bias_rows*/) {}

  /// Whether the layer may be asked for one sample's gradient of its weight after the other, where
  /// (a, g) of all positions would take much more memory than they do.
  virtual bool takes_samples(const ParamLayer&) const { return false; }
  /// Calls `add` once for every sample, in order: the layer's backward runs in these calls. Only
  /// after takes_samples returned true.
  virtual void consume_samples(const ParamLayer&, int64_t /*samples*/, const AddSample& /*add*/) {}
};

/// Notified of every use of parameters that are not always in memory: it gathers them before and
/// may free them after. Attached from outside.
class ParameterKeeper {
 public:
  virtual ~ParameterKeeper() = default;
  virtual void before_forward(const ParamLayer& layer) = 0;
  /// `in_graph`: a backward of this use will come.
  virtual void after_forward(const ParamLayer& layer, bool in_graph) = 0;
  virtual void before_backward(const ParamLayer& layer) = 0;
  virtual void after_backward(const ParamLayer& layer) = 0;
  /// By the gradient consumer: the layer's part is in its parameters' grad, for this micro-batch.
  virtual void gradients_added(const ParamLayer& layer) = 0;
};

/// Connects a model and its gradient consumer. The anchor is a scalar that requires gradients: it
/// keeps layers in the graph whose input does not (the embedding of integer ids, the first layer).
struct Seam {
  GradientConsumer* consumer = nullptr;
  ParameterKeeper* keeper = nullptr;
  at::Tensor anchor;
  at::Tensor no_anchor;  ///< the same without gradients: for layers that need none
  /// Of the computation; weights are cast to it. A layer may have its own (ParamLayer::own_type).
  at::ScalarType compute_type = at::kFloat;
  /// Batch::words of the micro-batch that is trained on; undefined outside of a step. Recomputed
  /// blocks read it in the backward pass.
  at::Tensor words;
  /// Layers are plain LibTorch operations on the parameters' own values, which autograd then
  /// differentiates by itself: no seam, no consumer. For references to compare engines with.
  bool plain_autograd = false;
};

at::ScalarType ParamLayer::compute_type() const {
  return own_type.value_or(seam->compute_type);
}

}  // namespace moonshard::models
