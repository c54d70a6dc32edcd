#include "runtime/sharding/unwrapped.h"

#include <algorithm>

#include "runtime/sharding/settle_rows.h"

namespace moonshard::sharding {
namespace {

// Updates per step: fewer and larger than one per layer, yet the gradients of one update batch stay
// a small part of the model's.
constexpr int64_t kUpdateBatches = 64;

}  // namespace

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

}  // namespace moonshard::sharding
