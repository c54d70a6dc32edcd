// Adam (Kingma and Ba 2015; weight decay is added to the gradient) and AdamW (Loshchilov and Hutter
// 2019; decay is decoupled), by LibTorch's fused pass: value, gradient and both moments are read
// and written once.
#pragma once

#include <map>

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

class Adam : public Optimizer {
 public:
  explicit Adam(const OptimizerOptions& options) : options_(options) {}
  void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr) override;
  int64_t state_bytes() const override;
  std::vector<std::string> state_names() const override { return {"mean", "mean_square"}; }
  ParameterState state(const models::Parameter& parameter) const override;
  void set_state(const models::Parameter& parameter, const ParameterState& state) override;
  void forget_states() override { states_.clear(); }

 private:
  struct State {
    at::Tensor mean, mean_square, step;
  };
  State& state_of(const models::Parameter& parameter);

  OptimizerOptions options_;
  std::map<uint32_t, State> states_;  ///< by the parameter's index
};

}  // namespace moonshard::optim
