// Adam (Kingma and Ba 2015; weight decay is added to the gradient) and AdamW (Loshchilov and Hutter
// 2019; decay is decoupled). Moments have the value's dtype.
#pragma once

#include <map>

#include "runtime/optim/optimizer.h"

namespace moonshard::optim {

class Adam : public Optimizer {
 public:
  explicit Adam(const OptimizerOptions& options) : options_(options) {}
  int64_t state_bytes() const override;
  std::vector<std::string> state_names() const override { return {"mean", "mean_square"}; }
  ParameterState state(const models::Parameter& parameter) const override;
  void set_state(const models::Parameter& parameter, const ParameterState& state) override;
  void forget_states() override { states_.clear(); }

 protected:
  kernels::UpdateRule rule() const override;
  void make_state(const models::Parameter& parameter, at::ScalarType sums) override;
  void use_state(const models::Parameter& parameter, kernels::UpdatePart& part) override;

 private:
  struct State {
    at::Tensor mean, mean_square;
    int64_t steps = 0;
  };

  OptimizerOptions options_;
  std::map<uint32_t, State> states_;  ///< by the parameter's index
};

}  // namespace moonshard::optim
