// The elementwise part of gated layers: f(gate) * up, with f = silu (SwiGLU) or f = gelu in its
// tanh form (GeGLU).
//
// gate, up and everything else: one shape, one dtype. On a GPU float32 and bfloat16 contiguous
// tensors take one pass forward and one backward; float64, half and the CPU take ATen operations.
// Rounding as in those: f(gate) is rounded to the dtype before it is multiplied by `up`. Forward
// agrees with the reference within one ulp; backward, which rounds fewer intermediates, within two.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/common/elementwise_launch.h"

namespace moonshard::kernels {

/// Whether the kernels run for tensors such as this one.
bool gated_kernel_runs(const at::Tensor& gate);

at::Tensor gated_forward(const at::Tensor& gate, const at::Tensor& up, GateFunction function);
at::Tensor gated_forward_ref(const at::Tensor& gate, const at::Tensor& up, GateFunction function);

struct GatedWants {
  bool product = false;  ///< f(gate) * up once more, with the forward pass's bits
  // Results in memory that must not be shared: `up`'s gradient in g's, and the others in that of
  // the factors, gate's gradient in gate's and the product in up's.
  bool overwrite_g = false, overwrite_factors = false;
};
struct GatedGradients {
  at::Tensor gate, up;
  at::Tensor product = {};
};

/// g: gradient of the result.
GatedGradients gated_backward(const at::Tensor& g, const at::Tensor& gate, const at::Tensor& up,
                              GateFunction function, GatedWants wants = {});
GatedGradients gated_backward_ref(const at::Tensor& g, const at::Tensor& gate, const at::Tensor& up,
                                  GateFunction function);

}  // namespace moonshard::kernels
