// Stochastic gradient descent with optional momentum: one pass over each parameter.
#pragma once

#include <map>

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : momentum_(options.momentum) {}
  int64_t state_bytes() const override;
  std::vector<std::string> state_names() const override;
  ParameterState state(const models::Parameter& parameter) const override;
  void set_state(const models::Parameter& parameter, const ParameterState& state) override;
  void forget_states() override { sums_.clear(); }

 protected:
  kernels::UpdateRule rule() const override;
  void make_state(const models::Parameter& parameter, at::ScalarType sums) override;
  void use_state(const models::Parameter& parameter, kernels::UpdatePart& part) override;

 private:
  struct Sum {
    at::Tensor tensor;  ///< in the dtype of gradients
    bool is_used = false;
  };

  double momentum_;
  std::map<uint32_t, Sum> sums_;  ///< by parameter index; empty without momentum
};

}  // namespace moonshard::optim
