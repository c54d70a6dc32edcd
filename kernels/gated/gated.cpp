#include "kernels/gated/gated.h"

#include <ATen/ATen.h>

#include "kernels/common/cuda_library.h"
#include "kernels/common/fused_tensors.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

void check_alike(const at::Tensor& gate, const at::Tensor& other, const char* name) {
  MS_CHECK(other.sizes() == gate.sizes() && other.scalar_type() == gate.scalar_type() &&
               other.device() == gate.device(),
           "gated: expected {} like gate, {} {}, got {} {}", name,
           c10::toString(gate.scalar_type()), c10::str(gate.sizes()),
           c10::toString(other.scalar_type()), c10::str(other.sizes()));
}

}  // namespace

bool gated_kernel_runs(const at::Tensor& gate) {
  return fused_kernel_runs("gated", gate);
}

at::Tensor gated_forward(const at::Tensor& gate, const at::Tensor& up, GateFunction function) {
  check_alike(gate, up, "up");
  if (!gated_kernel_runs(gate)) return gated_forward_ref(gate, up, function);
  const at::Tensor plain_gate = gate.contiguous(), plain_up = up.contiguous();
  at::Tensor result = at::empty_like(plain_gate);
  cuda().launch_gated_forward(plain_gate.const_data_ptr(), plain_up.const_data_ptr(),
                              result.mutable_data_ptr(), result.numel(), function,
                              number_format(result), stream_of(result));
  return result;
}

GatedGradients gated_backward(const at::Tensor& g, const at::Tensor& gate, const at::Tensor& up,
                              GateFunction function, GatedWants wants) {
  check_alike(gate, up, "up");
  check_alike(gate, g, "the gradient");
  if (!gated_kernel_runs(gate)) {
    const GatedGradients plain = gated_backward_ref(g, gate, up, function);
    const at::Tensor product = wants.product ? gated_forward_ref(gate, up, function) : at::Tensor();
    return {placed(plain.gate, gate, wants.overwrite_factors),
            placed(plain.up, g, wants.overwrite_g),
            wants.product ? placed(product, up, wants.overwrite_factors) : product};
  }
  const at::Tensor plain_g = g.contiguous(), plain_gate = gate.contiguous(),
                   plain_up = up.contiguous();
  const auto room = [&](bool overwrite, const at::Tensor& there) {
    return overwrite ? there : at::empty_like(plain_gate);
  };
  const GatedGradients found{
      room(wants.overwrite_factors, plain_gate), room(wants.overwrite_g, plain_g),
      wants.product ? room(wants.overwrite_factors, plain_up) : at::Tensor()};
  cuda().launch_gated_backward(
      plain_g.const_data_ptr(), plain_gate.const_data_ptr(), plain_up.const_data_ptr(),
      found.gate.mutable_data_ptr(), found.up.mutable_data_ptr(),
      wants.product ? found.product.mutable_data_ptr() : nullptr, plain_gate.numel(), function,
      number_format(plain_gate), stream_of(plain_gate));
  return found;
}

}  // namespace moonshard::kernels
