#include "runtime/optim/adam.h"

#include <ATen/ATen.h>

namespace moonshard::optim {

kernels::UpdateRule Adam::rule() const {
  const bool decoupled = options_.optimizer == "adamw";
  kernels::UpdateRule rule;
  rule.kind = decoupled ? kernels::UpdateKind::AdamW : kernels::UpdateKind::Adam;
  rule.beta1 = options_.beta1;
  rule.beta2 = options_.beta2;
  rule.eps = options_.eps;
  rule.weight_decay = options_.weight_decay >= 0 ? options_.weight_decay : decoupled ? 0.1 : 0.0;
  return rule;
}

void Adam::make_state(const models::Parameter& parameter, at::ScalarType) {
  State& state = states_[parameter.index];
  if (state.mean.defined()) return;
  state.mean = at::zeros_like(parameter.value);
  state.mean_square = at::zeros_like(parameter.value);
}

void Adam::use_state(const models::Parameter& parameter, kernels::UpdatePart& part) {
  State& state = states_[parameter.index];
  part.first_moment = state.mean;
  part.second_moment = state.mean_square;
  part.steps = ++state.steps;
}

ParameterState Adam::state(const models::Parameter& parameter) const {
  const auto found = states_.find(parameter.index);
  if (found == states_.end() || found->second.steps == 0) return {};
  const State& state = found->second;
  return {state.steps, {{"mean", state.mean}, {"mean_square", state.mean_square}}};
}

void Adam::set_state(const models::Parameter& parameter, const ParameterState& state) {
  State& own = states_[parameter.index];
  for (const auto& [name, tensor] : state.tensors)
    (name == "mean" ? own.mean : own.mean_square) = tensor;
  own.steps = state.steps;
}

int64_t Adam::state_bytes() const {
  int64_t total = 0;
  for (const auto& [index, state] : states_) {
    total += static_cast<int64_t>(state.mean.nbytes() + state.mean_square.nbytes());
  }
  return total;
}

}  // namespace moonshard::optim
