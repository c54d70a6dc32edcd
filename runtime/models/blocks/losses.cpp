#include "runtime/models/blocks/losses.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "kernels/cross_entropy/cross_entropy.h"
#include "runtime/models/blocks/activations.h"
#include "runtime/models/blocks/param_ops.h"

namespace moonshard::models {
namespace {

using kernels::kIgnoredLabel;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// Scores [N, V] -> losses [N]. Kept for backward: the scores and one number per row.
struct RowLossFunction : torch::autograd::Function<RowLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& scores,
                            const at::Tensor& labels, double cap) {
    const kernels::RowLosses rows = kernels::cross_entropy_forward(scores, labels, cap);
    context->saved_data["cap"] = cap;
    context->save_for_backward({scores, labels, rows.log_sums});
    return rows.losses;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    // A graph that is kept needs its scores once more.
    const bool last = !torch::autograd::get_current_graph_task_keep_graph();
    const at::Tensor scores = saved[0].variable_data();
    return {
        kernels::cross_entropy_backward(scores, saved[1], saved[2], gradients[0],
                                        /*overwrite=*/last, context->saved_data["cap"].toDouble()),
        at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor classification_losses(const at::Tensor& scores, const at::Tensor& labels) {
  return at::cross_entropy_loss(at_least_float(scores), labels, {}, at::Reduction::None);
}

at::Tensor token_losses(const Seam& seam, at::Tensor scores, const at::Tensor& labels, double cap) {
  at::Tensor flat;
  if (!seam.plain_autograd && takes_fused_form(kernels::cross_entropy_kernel_runs(scores))) {
    flat = RowLossFunction::apply(scores.flatten(0, 1), labels.flatten(), cap).view_as(labels);
  } else {
    if (cap > 0) scores = soft_capped(scores, cap);
    flat = at::cross_entropy_loss(at_least_float(scores).flatten(0, 1), labels.flatten(), {},
                                  at::Reduction::None, kIgnoredLabel)
               .view_as(labels);
  }
  return mean_of_labelled(flat, labels);
}

at::Tensor mean_of_labelled(const at::Tensor& losses, const at::Tensor& labels) {
  const at::Tensor counted = labels.ne(kIgnoredLabel).sum(-1).clamp_min(1);
  return losses.sum(-1) / counted;
}

at::Tensor regression_losses(const at::Tensor& outputs, const at::Tensor& targets) {
  return (at_least_float(outputs) - at_least_float(targets)).square().flatten(1).mean(-1);
}

}  // namespace moonshard::models
