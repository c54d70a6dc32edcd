#include "runtime/optim/sgd.h"

#include <ATen/ATen.h>

namespace moonshard::optim {

void Sgd::step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    if (!parameter->grad.defined()) continue;
    if (momentum_ == 0) {
      parameter->value.add_(parameter->grad, -lr);
      continue;
    }
    at::Tensor& sum = sums_[parameter->index];
    if (!sum.defined()) sum = at::zeros_like(parameter->grad);
    sum.mul_(momentum_).add_(parameter->grad);
    parameter->value.add_(sum, -lr);
  }
}

int64_t Sgd::state_bytes() const {
  int64_t total = 0;
  for (const auto& [index, sum] : sums_) total += static_cast<int64_t>(sum.nbytes());
  return total;
}

}  // namespace moonshard::optim
