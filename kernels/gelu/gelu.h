// GELU in its tanh form (Hendrycks and Gimpel, 2016): 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715
// x^3))), which is x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)): written so, the left tail keeps
// its digits.
//
// On a GPU float32 and bfloat16 tensors take one pass forward and one backward; float64, half and
// the CPU take LibTorch's gelu. Both agree within one ulp, or 1e-7 of |x| where LibTorch's form
// cancels.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// Whether the kernels run for tensors such as this one.
bool gelu_kernel_runs(const at::Tensor& x);

at::Tensor gelu_forward(const at::Tensor& x);
at::Tensor gelu_forward_ref(const at::Tensor& x);

/// g: gradient of the result. With `overwrite` the gradient of x is written into g's memory, which
/// must not be shared.
at::Tensor gelu_backward(const at::Tensor& g, const at::Tensor& x, bool overwrite = false);
at::Tensor gelu_backward_ref(const at::Tensor& g, const at::Tensor& x);

}  // namespace moonshard::kernels
