#include "kernels/gelu/gelu.h"

#include <ATen/ATen.h>

#include "kernels/common/cuda_library.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_tensors.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {

bool gelu_kernel_runs(const at::Tensor& x) {
  return fused_kernel_runs("gelu", x);
}

at::Tensor gelu_forward(const at::Tensor& x) {
  if (!gelu_kernel_runs(x)) return gelu_forward_ref(x);
  const at::Tensor plain_x = x.contiguous();
  at::Tensor result = at::empty_like(plain_x);
  cuda().launch_gelu_forward(plain_x.const_data_ptr(), result.mutable_data_ptr(), result.numel(),
                             number_format(result), stream_of(result));
  return result;
}

at::Tensor gelu_backward(const at::Tensor& g, const at::Tensor& x, bool overwrite) {
  MS_CHECK(g.sizes() == x.sizes() && g.scalar_type() == x.scalar_type(),
           "gelu: expected a gradient like x, {} {}, got {} {}", c10::toString(x.scalar_type()),
           c10::str(x.sizes()), c10::toString(g.scalar_type()), c10::str(g.sizes()));
  if (!gelu_kernel_runs(x)) return placed(gelu_backward_ref(g, x), g, overwrite);
  const at::Tensor plain_g = g.contiguous(), plain_x = x.contiguous();
  at::Tensor gradient = overwrite ? plain_g : at::empty_like(plain_x);
  cuda().launch_gelu_backward(plain_g.const_data_ptr(), plain_x.const_data_ptr(),
                              gradient.mutable_data_ptr(), plain_x.numel(), number_format(plain_x),
                              stream_of(plain_x));
  return gradient;
}

}  // namespace moonshard::kernels
