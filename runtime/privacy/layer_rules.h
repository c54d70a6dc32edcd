// Gradient rules per kind of layer: from what the seam hands over, (layer, a, g), to weight
// gradients. Shape letters: B samples, T positions (everything between the sample and the last
// dimension), i and o input and output width, V rows of an embedding.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::privacy {

/// Gradients of one layer's parameters; bias is undefined where the layer has none or it is frozen,
/// weight is undefined where it is frozen.
struct LayerGradients {
  at::Tensor weight, bias;
};

/// Gradient of each sample alone: [B, shape of the parameter], float32 or wider.
LayerGradients per_sample_gradients(const models::ParamLayer& layer, const at::Tensor& a,
                                    const at::Tensor& g);

/// Gradient summed over samples: [shape of the parameter], in the parameter's dtype.
LayerGradients summed_gradients(const models::ParamLayer& layer, const at::Tensor& a,
                                const at::Tensor& g);

}  // namespace moonshard::privacy
