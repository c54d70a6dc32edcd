// Parameters and the seam. A model is built of parametered layers; each layer's backward hands what
// a gradient rule needs to the one consumer that is attached from outside: a clipping engine, or
// plain accumulation. That is the whole coupling between models and privacy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace moonshard::models {

struct Parameter {
  std::string name;    ///< as in Hugging Face files, e.g. "model.layers.0.mlp.up_proj.weight"
  uint32_t index = 0;  ///< position in the model; names its noise stream
  at::Tensor value;
  at::Tensor grad;  ///< summed over samples; undefined between steps
  bool trainable = true;
};

enum class LayerKind { Linear, Embedding, RmsNorm };

const char* layer_kind_name(LayerKind kind);

struct Seam;

/// One use of parameters in the forward pass. Two layers may share a parameter (tied weights).
struct ParamLayer {
  std::string name;
  LayerKind kind = LayerKind::Linear;
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null when the layer has none
  Seam* seam = nullptr;

  bool trainable() const { return weight->trainable || (bias != nullptr && bias->trainable); }
};

/// Receives, for every parametered layer in backward order:
///   Linear     a = input [B, …, d_in],        g = output gradient [B, …, d_out]
///   Embedding  a = ids [B, T] int64,          g = output gradient [B, T, d]
///   RmsNorm    a = normalised input [B, …, d] (before the weight), g = output gradient [B, …, d]
/// g belongs to the sum of the per-sample losses, so that row b of g is sample b's own gradient.
class GradientConsumer {
 public:
  virtual ~GradientConsumer() = default;
  virtual void consume(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) = 0;
};

/// Where a model and its gradient consumer meet. The anchor is a scalar that requires gradients: it
/// keeps layers in the graph whose input does not (the embedding of integer ids, the first layer).
struct Seam {
  GradientConsumer* consumer = nullptr;
  at::Tensor anchor;
};

}  // namespace moonshard::models
