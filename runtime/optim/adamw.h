// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), by LibTorch's fused
// pass: value, gradient and both moments are read and written once.
#pragma once

#include <map>

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

class AdamW : public Optimizer {
 public:
  explicit AdamW(const OptimizerOptions& options) : options_(options) {}
  void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters) override;
  int64_t state_bytes() const override;

 private:
  struct State {
    at::Tensor mean, mean_square, step;
  };
  State& state_of(const models::Parameter& parameter);

  OptimizerOptions options_;
  std::map<uint32_t, State> states_;  ///< by the parameter's index
};

}  // namespace moonshard::optim
