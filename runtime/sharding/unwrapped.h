// Without a wrapper: the model's own parameters are updated, whole, on one rank. Attached to the
// seam only while gradients are passed on early: a few parameters (an update batch) at a time, as
// there are no units.
#pragma once

#include <map>

#include "runtime/sharding/parallel.h"

namespace moonshard::sharding {

class Unwrapped : public Parallel, public models::ParameterKeeper {
 public:
  explicit Unwrapped(models::Model& model) : model_(model) {}
  ~Unwrapped() override { on_complete({}); }

  const std::vector<std::unique_ptr<models::Parameter>>& updated() const override {
    return model_.parameters();
  }
  std::vector<KeptPart> kept_parts() override { return whole_parts(model_); }
  void on_complete(Completed completed) override;
  int64_t most_completed() const override;
  void begin_micro_batch(bool last) override;
  void begin_backward(bool last) override;
  void end_backward() override;

  void before_forward(const models::ParamLayer&) override {}
  void after_forward(const models::ParamLayer&, bool) override {}
  void before_backward(const models::ParamLayer&) override {}
  void after_backward(const models::ParamLayer& layer) override;
  void gradients_added(const models::ParamLayer& layer) override;

 private:
  void hand_over(bool all);

  models::Model& model_;
  Completed completed_;
  std::map<uint32_t, int64_t> layers_left_;  ///< by parameter: layers without gradient yet
  std::vector<size_t> whole_;                ///< parameters of the next update batch
  int64_t elements_ = 0;                     ///< in them
  int64_t enough_ = 0;                       ///< least elements of an update batch
  bool in_backward_ = false, last_pass_ = false;
};

}  // namespace moonshard::sharding
