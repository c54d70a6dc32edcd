#include <ATen/ATen.h>

#include "kernels/gated/gated.h"

namespace moonshard::kernels {
namespace {

at::Tensor opened(const at::Tensor& gate, GateFunction function) {
  return function == GateFunction::Silu ? at::silu(gate) : at::gelu(gate, "tanh");
}

}  // namespace

at::Tensor gated_forward_ref(const at::Tensor& gate, const at::Tensor& up, GateFunction function) {
  return opened(gate, function) * up;
}

GatedGradients gated_backward_ref(const at::Tensor& g, const at::Tensor& gate, const at::Tensor& up,
                                  GateFunction function) {
  const auto type = gate.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide_g = g.to(wide), to_opened = wide_g * up.to(wide);
  const at::Tensor to_gate = function == GateFunction::Silu
                                 ? at::silu_backward(to_opened, gate.to(wide))
                                 : at::gelu_backward(to_opened, gate.to(wide), "tanh");
  return {to_gate.to(type), (wide_g * opened(gate, function).to(wide)).to(type)};
}

}  // namespace moonshard::kernels
