#include "kernels/swiglu/swiglu.h"

#include <ATen/ATen.h>

#include "kernels/common/cuda_library.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/fused_tensors.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_alike(const at::Tensor& gate, const at::Tensor& other, const char* name) {
  MS_CHECK(other.sizes() == gate.sizes() && other.scalar_type() == gate.scalar_type() &&
               other.device() == gate.device(),
           "swiglu: expected {} like gate, {} {}, got {} {}", name,
           c10::toString(gate.scalar_type()), c10::str(gate.sizes()),
           c10::toString(other.scalar_type()), c10::str(other.sizes()));
}

}  // namespace

bool swiglu_kernel_runs(const at::Tensor& gate) {
  return fused_kernel_runs("swiglu", gate);
}

at::Tensor swiglu_forward(const at::Tensor& gate, const at::Tensor& up) {
  check_alike(gate, up, "up");
  if (!swiglu_kernel_runs(gate)) return swiglu_forward_ref(gate, up);
  const at::Tensor plain_gate = gate.contiguous(), plain_up = up.contiguous();
  at::Tensor result = at::empty_like(plain_gate);
  cuda().launch_swiglu_forward(plain_gate.const_data_ptr(), plain_up.const_data_ptr(),
                               result.mutable_data_ptr(), result.numel(), number_format(result),
                               stream_of(result));
  return result;
}

SwigluGradients swiglu_backward(const at::Tensor& g, const at::Tensor& gate, const at::Tensor& up,
                                bool overwrite) {
  check_alike(gate, up, "up");
  check_alike(gate, g, "the gradient");
  if (!swiglu_kernel_runs(gate)) {
    const SwigluGradients plain = swiglu_backward_ref(g, gate, up);
    return {plain.gate, placed(plain.up, g, overwrite)};
  }
  const at::Tensor plain_g = g.contiguous(), plain_gate = gate.contiguous(),
                   plain_up = up.contiguous();
  const SwigluGradients gradients{at::empty_like(plain_gate),
                                  overwrite ? plain_g : at::empty_like(plain_gate)};
  cuda().launch_swiglu_backward(plain_g.const_data_ptr(), plain_gate.const_data_ptr(),
                                plain_up.const_data_ptr(), gradients.gate.mutable_data_ptr(),
                                gradients.up.mutable_data_ptr(), plain_gate.numel(),
                                number_format(plain_gate), stream_of(plain_gate));
  return gradients;
}

}  // namespace moonshard::kernels
