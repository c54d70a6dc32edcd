#include "runtime/models/blocks/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/custom_class.h>

#include "runtime/models/blocks/kept_attention.h"
#include "runtime/profile/ledger.h"

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeldBlock : torch::CustomClassHolder {
  HeldBlock(BlockFunction f, Recompute recompute) : function(std::move(f)), what(recompute) {}

  at::Tensor run(const at::Tensor& x, const at::Tensor& c, bool first) {
    std::optional<KeptAttention::Scope> scope;
    if (what == Recompute::AllButAttention) scope.emplace(attention, /*records=*/first);
    return function(x, c);
  }

  BlockFunction function;
  Recompute what;
  KeptAttention attention;
};

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& c,
                            const at::Tensor& anchor, bool conditioned,
                            const c10::intrusive_ptr<HeldBlock>& block) {
    context->save_for_backward({x, c, anchor});
    context->saved_data["conditioned"] = conditioned;
    context->saved_data["block"] = c10::IValue::make_capsule(block);
    // Gradients are off inside a custom function's forward.
    return block->run(x, conditioned ? c : at::Tensor(), /*first=*/true);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto held = context->saved_data["block"].toCapsule();
    HeldBlock& block = *static_cast<HeldBlock*>(held.get());
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
      y = block.run(x, c, /*first=*/false);
    }
    // The graph of the second run holds what it took. The outer one lives for as long as the losses
    // do, and would hold it until the last block is done.
    if (!torch::autograd::get_current_graph_task_keep_graph()) block.attention = {};
    variable_list inputs;
    // The anchor is walked for the seam's sake, its own gradient is not used.
    if (anchor.requires_grad()) inputs.push_back(anchor);
    size_t next = inputs.size();
    if (x.requires_grad()) inputs.push_back(x);
    if (c.defined() && c.requires_grad()) inputs.push_back(c);
    variable_list found = torch::autograd::grad({y}, inputs, {gradients[0]}, std::nullopt,
                                                /*create_graph=*/false, /*allow_unused=*/true);
    const at::Tensor x_gradient = x.requires_grad() ? found[next++] : at::Tensor();
    const at::Tensor c_gradient = c.defined() && c.requires_grad() ? found[next++] : at::Tensor();
    return {x_gradient, c_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Recompute recompute_of(const std::string& checkpointing, int64_t every, size_t index) {
  if (checkpointing == "none" || static_cast<int64_t>(index) % every != 0)
    return Recompute::Nothing;
  return checkpointing == "block" ? Recompute::Block : Recompute::AllButAttention;
}

at::Tensor checkpointed(const Seam& seam, Recompute what, bool trains, BlockFunction block,
                        const at::Tensor& x, const at::Tensor& c) {
  if (what == Recompute::Nothing || seam.plain_autograd || !at::GradMode::is_enabled())
    return block(x, c);
  return CheckpointFunction::apply(x, c.defined() ? c : seam.no_anchor,
                                   trains ? seam.anchor : seam.no_anchor, c.defined(),
                                   c10::make_intrusive<HeldBlock>(std::move(block), what));
}

}  // namespace moonshard::models
