#include <cmath>

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/fused_update/fused_update.h"
#include "kernels/secure_noise/secure_noise.h"
#include "kernels/split_float/split_float.h"

namespace moonshard::kernels {
namespace {

at::ScalarType sum_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// A factor for each element where rows have several: of those from `first_element` on.
at::Tensor factors_of_elements(const at::Tensor& row_factors, int64_t first_element,
                               int64_t count) {
  if (row_factors.dim() == 1) return row_factors;
  return row_factors.repeat_interleave(kUnitElements, 1).narrow(1, first_element, count);
}

// The gradient that the update rule gets, in the part's grad.
void finish_gradient(UpdatePart& part, const UpdateNoise& noise) {
  sum_up_rows(part);
  if (!part.grad.defined())
    part.grad = at::zeros_like(part.value, part.value.options().dtype(sum_type(part.value)));
  // 8-bit noise would be coarser than what it hides.
  if (part.grad.element_size() < 4) part.grad = part.grad.to(at::kFloat);
  if (noise.std != 0) {
    part.grad = part.grad.contiguous();
    if (noise.secret != nullptr) {
      add_secure_noise(part.grad, noise.std, {*noise.secret, noise.step, part.parameter},
                       part.first_element);
    } else {
      add_counter_noise(part.grad, noise.std, {noise.key, noise.step, part.parameter},
                        part.first_element);
    }
  }
  part.grad.div_(noise.denominator);
}

// Adam whose mean square is without the noise's part of it.
void adam_corrected(UpdatePart& part, const UpdateRule& rule) {
  const at::ScalarType type = part.first_moment.scalar_type();
  at::Tensor gradient = part.grad.view(part.value.sizes()).to(type);
  if (rule.kind == UpdateKind::AdamW) {
    part.value.mul_(1 - rule.lr * rule.weight_decay);
  } else if (rule.weight_decay != 0) {
    gradient = gradient.add(part.value.to(type), rule.weight_decay);
  }
  part.first_moment.mul_(rule.beta1).add_(gradient, 1 - rule.beta1);
  part.second_moment.mul_(rule.beta2).addcmul_(gradient, gradient, 1 - rule.beta2);
  const auto steps = static_cast<double>(part.steps);
  const at::Tensor spread = (part.second_moment / (1 - std::pow(rule.beta2, steps)))
                                .sub_(rule.noise_variance)
                                .clamp_min_(rule.noise_floor)
                                .sqrt_();
  part.value.addcdiv_(part.first_moment.to(part.value.scalar_type()),
                      spread.to(part.value.scalar_type()),
                      -rule.lr / (1 - std::pow(rule.beta1, steps)));
}

void adam(std::vector<UpdatePart>& parts, const UpdateRule& rule) {
  if (rule.noise_variance > 0) {
    for (UpdatePart& part : parts) adam_corrected(part, rule);
    return;
  }
  std::vector<at::Tensor> values, grads, means, squares, steps;
  for (UpdatePart& part : parts) {
    values.push_back(part.value);
    grads.push_back(part.grad.to(part.value.scalar_type()));
    means.push_back(part.first_moment);
    squares.push_back(part.second_moment);
    steps.push_back(
        at::full({}, static_cast<double>(part.steps), part.value.options().dtype(at::kFloat)));
  }
  if (values.empty()) return;
  if (rule.kind == UpdateKind::AdamW) {
    at::_fused_adamw_(values, grads, means, squares, /*max_exp_avg_sqs=*/{}, steps, rule.lr,
                      rule.beta1, rule.beta2, rule.weight_decay, rule.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  } else {
    at::_fused_adam_(values, grads, means, squares, /*max_exp_avg_sqs=*/{}, steps, rule.lr,
                     rule.beta1, rule.beta2, rule.weight_decay, rule.eps, /*amsgrad=*/false,
                     /*maximize=*/false);
  }
}

}  // namespace

at::Tensor add_weighted_rows_ref(const at::Tensor& grad, const at::Tensor& rows,
                                 const at::Tensor& row_factors, int64_t first_element) {
  const at::ScalarType type = grad.defined() ? grad.scalar_type() : sum_type(rows);
  at::Tensor sum = grad.defined() ? grad : at::zeros(rows[0].sizes(), rows.options().dtype(type));
  const at::Tensor factors =
      factors_of_elements(row_factors.to(type), first_element, rows[0].numel());
  for (int64_t b = 0; b < rows.size(0); ++b) {
    const at::Tensor row =
        at::where(factors[b].ne(0), rows[b].flatten(), at::zeros({}, rows.options()));
    sum.add_(row.to(type).mul_(factors[b]).view(sum.sizes()));
  }
  return sum;
}

void fused_update_ref(std::vector<UpdatePart>& parts, const UpdateRule& rule,
                      const UpdateNoise& noise) {
  const at::NoGradGuard no_grad;
  // Values in halves, and strided ones, which LibTorch's Adam does not take, are updated in a copy.
  const std::vector<UpdatePart> own = parts;
  for (UpdatePart& part : parts) {
    if (part.low.defined()) {
      part.value = joined_float(part.value, part.low);
      part.low = at::Tensor();
    } else {
      part.value = part.value.contiguous();
    }
  }
  for (UpdatePart& part : parts) {
    finish_gradient(part, noise);
    if (rule.kind == UpdateKind::Replace) {
      part.value.copy_(part.grad);
    } else if (rule.kind == UpdateKind::Sgd) {
      part.value.add_(part.grad, -rule.lr);
    } else if (rule.kind == UpdateKind::Momentum) {
      part.first_moment.mul_(rule.momentum).add_(part.grad);
      part.value.add_(part.first_moment, -rule.lr);
    }
  }
  if (rule.kind == UpdateKind::Adam || rule.kind == UpdateKind::AdamW) adam(parts, rule);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (own[i].low.defined()) {
      split_float(parts[i].value, own[i].value, own[i].low);
    } else if (!parts[i].value.is_same(own[i].value)) {
      own[i].value.copy_(parts[i].value);
    }
    parts[i].value = own[i].value;
    parts[i].low = own[i].low;
  }
}

}  // namespace moonshard::kernels
