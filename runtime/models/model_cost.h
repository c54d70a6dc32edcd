// What a training step of a model costs, from its options alone: arithmetic per token, and memory
// of a step of engine "none" without an optimizer's state. Formulas stand beside the code.
// Layers have two forms (blocks/fused.h): on a GPU fused kernels recompute in backward what plain
// operations keep.
#pragma once

#include <cstdint>

#include "runtime/models/model_options.h"

namespace moonshard::models {

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
