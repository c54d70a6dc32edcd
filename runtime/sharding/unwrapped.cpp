#include <algorithm>
#include <map>

#include "runtime/sharding/parallel.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::sharding {
namespace {

// Without a wrapper: the model's own parameters are updated, whole, on one rank. Attached to the
// seam only while gradients are passed on early: a few parameters (an update batch) at a time, as
// there are no units.
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

void Unwrapped::on_complete(Completed completed) {
  completed_ = std::move(completed);
  layers_left_.clear();
  whole_.clear();
  elements_ = enough_ = 0;
  for (const auto& parameter : model_.parameters())
    if (parameter->trainable) enough_ += parameter->value.numel();
  enough_ /= kUpdateBatches;
  in_backward_ = last_pass_ = false;
  models::ParameterKeeper*& keeper = model_.seam().keeper;
  if (completed_ && keeper == nullptr) keeper = this;
  if (!completed_ && keeper == this) keeper = nullptr;
}

int64_t Unwrapped::most_completed() const {
  int64_t most = 0;
  for (const auto& parameter : model_.parameters())
    if (parameter->trainable) most = std::max(most, parameter->value.numel());
  return most + enough_;
}

void Unwrapped::begin_micro_batch(bool last) {
  layers_left_.clear();
  last_pass_ = false;
  if (!completed_ || !last) return;
  for (const auto& layer : model_.layers()) {
    if (!layer->trainable()) continue;
    for (const models::Parameter* parameter : {layer->weight, layer->bias})
      if (parameter != nullptr && parameter->trainable) ++layers_left_[parameter->index];
  }
}

void Unwrapped::begin_backward(bool last) {
  in_backward_ = true;
  last_pass_ = last;
}

void Unwrapped::end_backward() {
  in_backward_ = false;
  hand_over(/*all=*/true);
}

void Unwrapped::gradients_added(const models::ParamLayer& layer) {
  for (const models::Parameter* parameter : {layer.weight, layer.bias}) {
    if (parameter == nullptr) continue;
    const auto left = layers_left_.find(parameter->index);
    if (left != layers_left_.end() && --left->second == 0) {
      whole_.push_back(parameter->index);
      elements_ += parameter->value.numel();
    }
  }
  if (!in_backward_) hand_over(/*all=*/false);
}

// The layer may read its values until here.
void Unwrapped::after_backward(const models::ParamLayer&) {
  hand_over(/*all=*/false);
}

// Parameters completed after the last sum are left in updated() for the end of the step.
void Unwrapped::hand_over(bool all) {
  if (whole_.empty() || !completed_ || !last_pass_ || (!all && elements_ < enough_)) return;
  std::vector<size_t> parts;
  parts.swap(whole_);
  elements_ = 0;
  completed_(model_.parameters()[parts.front()]->name, parts);
  for (const size_t part : parts) forget_gradient(*model_.parameters()[part]);
}

}  // namespace

std::unique_ptr<Parallel> make_unwrapped(models::Model& model) {
  return std::make_unique<Unwrapped>(model);
}

}  // namespace moonshard::sharding
