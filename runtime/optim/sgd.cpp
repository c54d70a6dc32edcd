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

std::vector<std::string> Sgd::state_names() const {
  if (momentum_ == 0) return {};
  return {"sum"};
}

ParameterState Sgd::state(const models::Parameter& parameter) const {
  const auto found = sums_.find(parameter.index);
  if (found == sums_.end()) return {};
  return {0, {{"sum", found->second}}};  // the number of updates makes no difference to it
}

void Sgd::set_state(const models::Parameter& parameter, const ParameterState& state) {
  for (const auto& [name, tensor] : state.tensors) sums_[parameter.index] = tensor;
}

int64_t Sgd::state_bytes() const {
  int64_t total = 0;
  for (const auto& [index, sum] : sums_) total += static_cast<int64_t>(sum.nbytes());
  return total;
}

}  // namespace moonshard::optim
