#include "runtime/sharding/sharded_model.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/check.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::sharding {

ShardedModel::ShardedModel(models::Model& model, const ShardingOptions& options,
                           std::shared_ptr<comm::Communicator> group,
                           std::shared_ptr<comm::Communicator> copies)
    : WrappedModel(model, options, std::move(group)), order_(options) {
  context_.copies = std::move(copies);
  for (const UnitPlan& plan : plan_units(model, options)) {
    sharded_.push_back(std::make_unique<ShardedUnit>(
        plan, ShardedUnit::Kept{keeps_whole(), options.keep_frozen}, context_));
    const size_t first = updated_.size();
    sharded_.back()->place(model, updated_, first_elements_);
    std::vector<size_t> parts(updated_.size() - first);
    std::iota(parts.begin(), parts.end(), first);
    add_unit(*sharded_.back(), plan.layers, std::move(parts));
  }
  if (keeps_whole()) {
    for (const auto& unit : sharded_) unit->start_gather();
    for (const auto& unit : sharded_) unit->finish_gather();
  }
  attach();
}

ShardedModel::~ShardedModel() {
  if (!context_.single()) return;  // would need a collective
  try {
    expose_parameters();
  } catch (...) {  // the model then reports that its values are gone
  }
}

// ---- the step ----------------------------------------------------------------------------------

void ShardedModel::begin_step() {
  take_back();
  WrappedModel::begin_step();
}

void ShardedModel::end_step() {
  WrappedModel::end_step();
  if (!keeps_whole()) return;
  for (const auto& unit : sharded_) {
    // The gathered copy is out of date: rebuild it from all ranks' parts while nothing waits for
    // it. A step without samples has not used the one before.
    unit->end_gather();
    unit->release_idle();
    unit->start_gather();
  }
}

void ShardedModel::abandon() {
  running_.reset();
  WrappedModel::abandon();
  if (keeps_whole()) return;
  for (const auto& unit : sharded_) {
    unit->end_gather();
    unit->release_idle();
  }
}

// What is exposed now may be changed, and is taken back when the step begins.
bool ShardedModel::is_current() const {
  return std::all_of(sharded_.begin(), sharded_.end(), [&](const auto& unit) {
    return !unit->keeps_frozen() || (unit->frozen_is_current() && !exposed_);
  });
}

void ShardedModel::check_use_outside(const models::ParamLayer& layer) const {
  MS_CHECK(exposed_,
           "model '{}' is sharded: expected its layers to run inside of a training step, got a use "
           "of '{}' outside; call trainer:gather() on all ranks first",
           model_.options().model, layer.name);
}

void ShardedModel::put_in_place(size_t index) {
  if (running_ != index) {
    const size_t before = running_.value_or(index);
    const Phase phase = sharded_[before]->state().phase;
    const bool will_return = phase == Phase::Forward || phase == Phase::Backward;
    if (before != index && will_return && steps_aside(before) && sharded_[before]->is_whole())
      sharded_[before]->step_aside();
    running_ = index;
  }
  sharded_[index]->gather_ahead();
  sharded_[index]->end_gather();
}

void ShardedModel::forward_began(size_t index) {
  order_.when_forward_begins(index, sharded_.size(), steps_aside(0),
                             [&](size_t i) { sharded_[i]->gather_ahead(); });
}

void ShardedModel::forward_ended(size_t index) {
  const ShardedUnit& unit = *sharded_[index];
  if (order_.released_after_forward(index, sharded_.size(), unit.is_root(), unit.traits().reshards))
    sharded_[index]->release();
}

void ShardedModel::backward_began(size_t index) {
  order_.when_backward_begins(
      index, sharded_.size(), [&](size_t i) { return sharded_[i]->backward_is_over(); },
      [&](size_t i) { sharded_[i]->gather_ahead(); });
}

void ShardedModel::backward_ended(size_t index, bool last_pass) {
  order_.when_backward_ends(
      index, sharded_.size(), [&](size_t i) { return sharded_[i]->backward_is_over(); },
      [&](size_t i) { sharded_[i]->gather_ahead(); });
  const ShardedUnit& unit = *sharded_[index];
  if (order_.released_after_backward(unit.is_root(), unit.traits().reshards, last_pass))
    sharded_[index]->release();
}

void ShardedModel::micro_batch_ended(size_t index) {
  running_.reset();
  sharded_[index]->end_gather();
  if (sharded_[index]->is_whole() && !keeps_whole()) sharded_[index]->release();
}

// ---- whole parameters between steps ---------------------------------------------------------

void ShardedModel::expose_parameters() {
  if (exposed_) return;
  for (const auto& unit : sharded_) {
    unit->end_gather();
    unit->release_idle();
    unit->expose_parameters();
  }
  exposed_ = true;
}

void ShardedModel::take_back() {
  if (!exposed_) return;
  exposed_ = false;
  for (const auto& unit : sharded_) {
    unit->take_back_parameters();
    if (keeps_whole()) unit->start_gather();
  }
}

void ShardedModel::expose_gradients() {
  for (const auto& unit : sharded_) unit->expose_gradients();
}

std::vector<KeptPart> ShardedModel::kept_parts() {
  std::vector<KeptPart> parts;
  for (const auto& unit : sharded_) {
    unit->end_gather();  // a part may be a range of the row that is being gathered
    unit->list_kept(parts, exposed_);
  }
  return parts;
}

std::vector<at::Tensor> ShardedModel::kept_frozen() const {
  std::vector<at::Tensor> parts;
  for (const auto& unit : sharded_)
    if (unit->frozen_part().defined()) parts.push_back(unit->frozen_part());
  return parts;
}

void ShardedModel::kept_parts_changed() {
  for (const auto& unit : sharded_) {
    unit->release_idle();
    unit->parts_changed(exposed_);
    if (keeps_whole()) unit->start_gather();
  }
  exposed_ = false;
}

}  // namespace moonshard::sharding
