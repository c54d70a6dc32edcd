// SwiGLU's elementwise part: silu(gate) * up, silu(x) = x / (1 + exp(-x)).
//
// gate, up and everything else: one shape, one dtype. On a GPU float32 and bfloat16 contiguous
// tensors take one pass forward and one backward; float64, half and the CPU take ATen operations.
// Rounding as in those: silu(gate) is rounded to the dtype before it is multiplied by `up`. Forward
// agrees with the reference within one ulp; backward, which rounds fewer intermediates, within two.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// Whether the kernels run for tensors such as this one.
bool swiglu_kernel_runs(const at::Tensor& gate);

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up);
at::Tensor swiglu_forward_ref(const at::Tensor& gate, const at::Tensor& up);

struct SwigluGradients {
  at::Tensor gate, up;
};

/// g: gradient of the result. With `overwrite` the gradient of `up` is written into g's memory,
/// which must not be shared.
SwigluGradients swiglu_backward(const at::Tensor& g, const at::Tensor& gate, const at::Tensor& up,
                                bool overwrite = false);
SwigluGradients swiglu_backward_ref(const at::Tensor& g, const at::Tensor& gate,
                                    const at::Tensor& up);

}  // namespace moonshard::kernels
