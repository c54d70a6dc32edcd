#include "runtime/optim/sgd.h"

#include <ATen/ATen.h>

namespace moonshard::optim {

kernels::UpdateRule Sgd::rule() const {
  kernels::UpdateRule rule;
  rule.kind = momentum_ == 0 ? kernels::UpdateKind::Sgd : kernels::UpdateKind::Momentum;
  rule.momentum = momentum_;
  return rule;
}

void Sgd::make_state(const models::Parameter& parameter, at::ScalarType sums) {
  if (momentum_ == 0) return;
  at::Tensor& sum = sums_[parameter.index].tensor;
  if (sum.defined()) return;
  const bool wide = parameter.value.scalar_type() == at::kDouble;
  sum = at::zeros_like(parameter.value, parameter.value.options().dtype(wide ? at::kDouble : sums));
}

void Sgd::use_state(const models::Parameter& parameter, kernels::UpdatePart& part) {
  if (momentum_ == 0) return;
  Sum& sum = sums_[parameter.index];
  sum.is_used = true;
  part.first_moment = sum.tensor;
}

std::vector<std::string> Sgd::state_names() const {
  if (momentum_ == 0) return {};
  return {"sum"};
}

ParameterState Sgd::state(const models::Parameter& parameter) const {
  const auto found = sums_.find(parameter.index);
  if (found == sums_.end() || !found->second.is_used) return {};
  return {0, {{"sum", found->second.tensor}}};  // the number of updates makes no difference to it
}

void Sgd::set_state(const models::Parameter& parameter, const ParameterState& state) {
  for (const auto& [name, tensor] : state.tensors) sums_[parameter.index] = {tensor, true};
}

int64_t Sgd::state_bytes() const {
  int64_t total = 0;
  for (const auto& [index, sum] : sums_) total += static_cast<int64_t>(sum.tensor.nbytes());
  return total;
}

}  // namespace moonshard::optim
