#include <ATen/ATen.h>

#include "kernels/swiglu/swiglu.h"

namespace moonshard::kernels {

at::Tensor swiglu_forward_ref(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

SwigluGradients swiglu_backward_ref(const at::Tensor& g, const at::Tensor& gate,
                                    const at::Tensor& up) {
  const auto type = gate.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide_g = g.to(wide);
  return {at::silu_backward(wide_g * up.to(wide), gate.to(wide)).to(type),
          (wide_g * at::silu(gate).to(wide)).to(type)};
}

}  // namespace moonshard::kernels
