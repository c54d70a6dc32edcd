#include "runtime/optim/adam.h"

#include <ATen/ATen.h>

namespace moonshard::optim {

Adam::State& Adam::state_of(const models::Parameter& parameter) {
  State& state = states_[parameter.index];
  if (!state.mean.defined()) {
    state.mean = at::zeros_like(parameter.value);
    state.mean_square = at::zeros_like(parameter.value);
    state.step =
        at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(parameter.value.device()));
  }
  return state;
}

void Adam::step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values, grads, means, mean_squares, steps;
  for (const auto& parameter : parameters) {
    if (!parameter->grad.defined()) continue;
    State& state = state_of(*parameter);
    state.step.add_(1);
    values.push_back(parameter->value);
    grads.push_back(parameter->grad.to(parameter->value.scalar_type()));
    means.push_back(state.mean);
    mean_squares.push_back(state.mean_square);
    steps.push_back(state.step);
  }
  if (values.empty()) return;
  const bool decoupled = options_.optimizer == "adamw";
  const double decay = options_.weight_decay >= 0 ? options_.weight_decay : decoupled ? 0.1 : 0.0;
  if (decoupled) {
    at::_fused_adamw_(values, grads, means, mean_squares, /*max_exp_avg_sqs=*/{}, steps, lr,
                      options_.beta1, options_.beta2, decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  } else {
    at::_fused_adam_(values, grads, means, mean_squares, /*max_exp_avg_sqs=*/{}, steps, lr,
                     options_.beta1, options_.beta2, decay, options_.eps, /*amsgrad=*/false,
                     /*maximize=*/false);
  }
}

ParameterState Adam::state(const models::Parameter& parameter) const {
  const auto found = states_.find(parameter.index);
  if (found == states_.end()) return {};
  const State& state = found->second;
  return {static_cast<int64_t>(state.step.item<float>()),
          {{"mean", state.mean}, {"mean_square", state.mean_square}}};
}

void Adam::set_state(const models::Parameter& parameter, const ParameterState& state) {
  State& own = states_[parameter.index];
  for (const auto& [name, tensor] : state.tensors)
    (name == "mean" ? own.mean : own.mean_square) = tensor;
  own.step = at::full({}, static_cast<double>(state.steps),
                      at::TensorOptions().dtype(at::kFloat).device(parameter.value.device()));
}

int64_t Adam::state_bytes() const {
  int64_t total = 0;
  for (const auto& [index, state] : states_) {
    total += static_cast<int64_t>(state.mean.nbytes() + state.mean_square.nbytes());
  }
  return total;
}

}  // namespace moonshard::optim
