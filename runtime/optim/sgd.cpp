#include "runtime/optim/sgd.h"

#include <ATen/ATen.h>

namespace moonshard::optim {

void Sgd::step(const std::vector<std::unique_ptr<models::Parameter>>& parameters) {
  const at::NoGradGuard no_grad;
  for (const auto& parameter : parameters) {
    if (parameter->grad.defined()) parameter->value.add_(parameter->grad, -lr_);
  }
}

}  // namespace moonshard::optim
