// What a training step of a model costs, from its options alone: arithmetic per token, and memory
// of a step of engine "none" without an optimizer's state. Formulas stand beside the code.
// Layers have two forms (blocks/param_ops.h): on a GPU fused kernels recompute in backward what
// plain operations keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/models/model_options.h"

namespace moonshard::models {

/// Bytes that families say their layers keep and need: the terms of model_cost.h. Letters of the
/// formulas: T tokens of a sample, D hidden_dim, I intermediate_dim, H heads, Q = H x head_dim, K =
/// num_kv_heads x head_dim, V vocabulary, P values of a patch; s bytes of a value in the compute
/// dtype, w bytes of a statistic (float32 or wider).
struct CostDtypes {
  int64_t s, w;
  bool fused;  ///< layers are fused kernels (LayerForm::Fused)
};

/// Of a classifier's last block that runs for one token of each sample (option last_block), the
/// norm behind it included. Per token, but for `of_sample`.
struct LastBlockBytes {
  int64_t kept = 0;
  int64_t of_sample = 0;     ///< kept of each sample's one token
  int64_t in_forward = 0;    ///< held at once by its forward pass, where that is more
  int64_t of_attention = 0;  ///< gradients while its keys and values have theirs
  int64_t of_norm = 0;       ///< gradients while its norm runs backward
  int64_t gone = 0;          ///< of what is kept, what is gone by then where nobody holds it

  int64_t kept_bytes(int64_t samples, int64_t rows) const {
    return rows * kept + samples * of_sample;
  }
};

/// All per token but for the last six.
struct ActivationBytes {
  int64_t block = 0;             ///< what one block keeps for backward
  int64_t block_input = 0;       ///< what it keeps when it is recomputed
  int64_t attention_output = 0;  ///< and what more where its attention is not
  int64_t block_working = 0;     ///< gradients of activations that its backward holds at once
  int64_t outside = 0;           ///< kept by the first layers, the last norm, the head and the loss
  int64_t head_working = 0;      ///< more than `outside` while the loss and the head run
  int64_t batch = 0;             ///< the batch itself
  /// Layer whose weight's gradient is formed while all of `outside` is still there; empty: none.
  std::string head_layer = {};
  int64_t chunk = 0;         ///< while a head in chunks runs (head_chunk): its scores, made again
  int64_t shared = 0;        ///< kept once, however many samples and layers there are
  double masked = 0;         ///< share of the blocks whose fused attention reads a mask
  double windowed = 0;       ///< share of those whose kernel has a window
  double window_scores = 1;  ///< that it computes there, over those without one
  std::optional<LastBlockBytes> last_block = {};  ///< where it is unlike the others
};

/// The weights of "standard" attention: softmax keeps its result in w, the product with the values
/// keeps it in s (the same tensor when the dtypes agree); a causal one keeps its mask. Fused
/// attention keeps one number per head and row instead.
inline int64_t attention_statistics(const ModelOptions& o, const CostDtypes& f, int64_t T,
                                    bool causal) {
  if (o.attention == "flash") return o.num_heads * f.w;
  return o.num_heads * T * (f.w + (f.s != f.w ? f.s : 0)) + (causal ? T : 0);
}

/// While "standard" attention runs backward: gradients of weights and of scores.
inline int64_t attention_working(const ModelOptions& o, const CostDtypes& f, int64_t T) {
  return o.attention == "flash" ? 0 : 2 * o.num_heads * T * f.w;
}

struct ModelCost {
  int64_t num_parameters = 0;
  double flops_per_token = 0;    ///< forward and backward
  int64_t parameter_bytes = 0;   ///< in dtype
  int64_t gradient_bytes = 0;    ///< of what is trained, in float32 or wider
  int64_t activation_bytes = 0;  ///< kept from forward to backward, the batch included
  /// The most that is live at once. Below the sum of the three: gradients are allocated while
  /// activations are freed.
  int64_t peak_bytes = 0;
};

enum class LayerForm { Plain, Fused };

/// Fused where the device is named to be a GPU and the compute dtype is one that the
/// kernels support. "auto" counts as plain: no GPU is looked for, and the figure is the larger one.
LayerForm layer_form(const ModelOptions& options);

/// seq_length is not used by models of images and vectors. Builds the model's shapes on device
/// "meta", nothing else.
ModelCost model_cost(const ModelOptions& options, int64_t batch_size, int64_t seq_length,
                     LayerForm form);
inline ModelCost model_cost(const ModelOptions& options, int64_t batch_size, int64_t seq_length) {
  return model_cost(options, batch_size, seq_length, layer_form(options));
}

}  // namespace moonshard::models
