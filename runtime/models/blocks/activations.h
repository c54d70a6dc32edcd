// Activation functions without parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::models {

// Note: results that are overwritten. The fused form of gelu_tanh writes the gradient of its input
// into the memory of the result's gradient. So the result must go into one linear layer and nowhere
// else: a linear layer allocates its input's gradient, and nothing else holds it.

/// gelu(gate) * up, GELU in its tanh form (GeGLU), by plain operations: autograd keeps both, the
/// opened gate and the product. Fused: gated_linear (param_ops.h).
at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up);

/// scores -> cap tanh(scores / cap).
at::Tensor soft_capped(const at::Tensor& scores, double cap);

/// GELU in its tanh form. See "results that are overwritten".
at::Tensor gelu_tanh(const Seam& seam, const at::Tensor& x);

}  // namespace moonshard::models
