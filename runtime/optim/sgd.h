// Stochastic gradient descent: value -= lr * grad. No state.
#pragma once

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const OptimizerOptions& options) : lr_(options.lr) {}
  void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters) override;
  int64_t state_bytes() const override { return 0; }

 private:
  double lr_;
};

}  // namespace moonshard::optim
