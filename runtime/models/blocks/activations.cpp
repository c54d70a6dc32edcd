#include "runtime/models/blocks/activations.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/gelu/gelu.h"
#include "runtime/models/blocks/param_ops.h"

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct GeluFunction : Function<GeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return kernels::gelu_forward(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {kernels::gelu_backward(gradients[0], saved[0], /*overwrite=*/true)};
  }
};

}  // namespace

at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up) {
  return at::gelu(gate, "tanh") * up;
}

at::Tensor soft_capped(const at::Tensor& scores, double cap) {
  return at::tanh(scores / cap) * cap;
}

at::Tensor gelu_tanh(const Seam& seam, const at::Tensor& x) {
  if (!seam.plain_autograd && takes_fused_form(kernels::gelu_kernel_runs(x)))
    return GeluFunction::apply(x);
  return at::gelu(x, "tanh");
}

}  // namespace moonshard::models
