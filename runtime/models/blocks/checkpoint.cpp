#include "runtime/models/blocks/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "runtime/profile/ledger.h"

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldBlock : torch::CustomClassHolder {
  explicit HeldBlock(BlockFunction f) : function(std::move(f)) {}
  BlockFunction function;
};

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& c,
                            const at::Tensor& anchor, bool conditioned, BlockFunction block) {
    context->save_for_backward({x, c, anchor});
    context->saved_data["conditioned"] = conditioned;
    at::Tensor y = block(
        x, conditioned ? c : at::Tensor());  // gradients are off inside a custom function's forward
    context->saved_data["block"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldBlock>(std::move(block)));
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto held = context->saved_data["block"].toCapsule();
    const BlockFunction& block = static_cast<HeldBlock*>(held.get())->function;
    const auto saved = context->get_saved_variables();
    const bool conditioned = context->saved_data["conditioned"].toBool();
    const auto leaf = [&](size_t i) {
      return saved[i].detach().set_requires_grad(context->needs_input_grad(i));
    };
    const at::Tensor x = leaf(0), c = conditioned ? leaf(1) : at::Tensor(), anchor = saved[2];
    at::Tensor y;
    {
      const at::AutoGradMode enable(true);
      const profile::OwnerScope again(profile::Owner::Activations);
      y = block(x, c);
    }
    variable_list inputs{anchor};  // walked for the seam's sake, its own gradient is not used
    if (x.requires_grad()) inputs.push_back(x);
    if (c.defined() && c.requires_grad()) inputs.push_back(c);
    variable_list found = torch::autograd::grad({y}, inputs, {gradients[0]}, std::nullopt,
                                                /*create_graph=*/false, /*allow_unused=*/true);
    size_t next = 1;
    const at::Tensor x_gradient = x.requires_grad() ? found[next++] : at::Tensor();
    const at::Tensor c_gradient = c.defined() && c.requires_grad() ? found[next++] : at::Tensor();
    return {x_gradient, c_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor checkpointed(const Seam& seam, bool on, BlockFunction block, const at::Tensor& x,
                        const at::Tensor& c) {
  if (!on || seam.plain_autograd || !at::GradMode::is_enabled()) return block(x, c);
  return CheckpointFunction::apply(x, c.defined() ? c : seam.no_anchor, seam.anchor, c.defined(),
                                   std::move(block));
}

}  // namespace moonshard::models
