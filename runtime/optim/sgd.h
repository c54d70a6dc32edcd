// Stochastic gradient descent with optional momentum: one pass over each parameter.
#pragma once

#include <map>

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : momentum_(options.momentum) {}
  void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr) override;
  int64_t state_bytes() const override;
  std::vector<std::string> state_names() const override;
  ParameterState state(const models::Parameter& parameter) const override;
  void set_state(const models::Parameter& parameter, const ParameterState& state) override;
  void forget_states() override { sums_.clear(); }

 private:
  double momentum_;
  std::map<uint32_t, at::Tensor> sums_;  ///< by parameter index; empty without momentum
};

}  // namespace moonshard::optim
