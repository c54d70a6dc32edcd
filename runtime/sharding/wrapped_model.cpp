#include "runtime/sharding/wrapped_model.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::sharding {
namespace {

models::Model& checked_model(models::Model& model) {
  MS_CHECK(model.seam().keeper == nullptr,
           "parallel: expected a model that no other trainer shards, got one that is sharded; "
           "close the other trainer first");
  for (const auto& parameter : model.parameters()) {
    MS_CHECK(!parameter->value.is_meta() || model.awaits_values(),
             "parallel: expected a model with its parameters, got one whose '{}' went with the "
             "trainer that held it in parts; call gather() before that trainer is closed, or build "
             "the model again",
             parameter->name);
  }
  return model;
}

}  // namespace

WrappedModel::WrappedModel(models::Model& model, const ShardingOptions& options,
                           std::shared_ptr<comm::Communicator> group)
    : model_(checked_model(model)),
      options_(options),
      context_(model, std::move(group)),
      unit_of_layer_(model.layers().size(), 0) {
  if (context_.single()) options_.no_sync = false;  // no reduction to delay
  for (const auto& layer : model.layers()) types_before_.push_back(layer->own_type);
}

WrappedModel::~WrappedModel() {
  model_.seam().keeper = nullptr;
  for (size_t i = 0; i < types_before_.size(); ++i) model_.layers()[i]->own_type = types_before_[i];
}

void WrappedModel::add_unit(Unit& unit, const std::vector<const models::ParamLayer*>& layers,
                            std::vector<size_t> parts) {
  for (const models::ParamLayer* layer : layers) unit_of_layer_[layer->index] = units_.size();
  for (const size_t part : parts) {
    if (part_is_beside_.size() <= part) part_is_beside_.resize(part + 1, 0);
    part_is_beside_[part] = unit.traits().is_offloaded ? 1 : 0;
  }
  context_.works_beside = context_.works_beside || unit.traits().is_offloaded;
  if (unit.traits().compute_type != context_.compute_type)
    for (const models::ParamLayer* layer : layers)
      model_.layers()[layer->index]->own_type = unit.traits().compute_type;
  units_.push_back(&unit);
  parts_of_unit_.push_back(std::move(parts));
}

std::vector<comm::Traffic> WrappedModel::traffic() const {
  std::vector<comm::Traffic> all = context_.group->traffic();
  if (context_.copies == nullptr) return all;
  for (const comm::Traffic& own : context_.copies->traffic()) all.push_back(own);
  return all;
}

void WrappedModel::attach() {
  model_.seam().keeper = this;
  model_.values_are_placed();
}

std::vector<std::string> WrappedModel::unit_names() const {
  std::vector<std::string> names;
  for (const Unit* unit : units_) names.push_back(unit->name());
  return names;
}

void WrappedModel::record_into(std::shared_ptr<profile::Timeline> timeline) {
  timeline_ = std::move(timeline);
}

// ---- the step ----------------------------------------------------------------------------------

void WrappedModel::begin_step() {
  context_.memory.gradients = context_.memory.gradients_now;
  if (timeline_ == nullptr) {
    context_.group->reset_traffic();
    if (context_.copies != nullptr) context_.copies->reset_traffic();
  }
}

void WrappedModel::on_complete(Completed completed) {
  if (!completed) {
    context_.worker().drop();
    updating_.clear();
  }
  completed_ = std::move(completed);
  tell_leaving();
  for (Unit* unit : units_) unit->begin_hand_over();
}

void WrappedModel::on_leaving(Leaving leaving) {
  leaving_ = std::move(leaving);
  tell_leaving();
}

void WrappedModel::tell_leaving() {
  context_.leaving = completed_ && context_.works_beside ? leaving_ : Leaving();
}

void WrappedModel::work_beside(std::function<void()> work) {
  context_.when_home(std::move(work));
}

void WrappedModel::wait_for_work() {
  if (!context_.works_beside) return;
  context_.wait_for_home();
  free_updated();
}

int64_t WrappedModel::most_completed() const {
  int64_t most = 0;
  for (const auto& parts : parts_of_unit_) {
    int64_t elements = 0;
    for (const size_t part : parts) elements += updated()[part]->value.numel();
    most = std::max(most, elements);
  }
  return most;
}

void WrappedModel::begin_micro_batch(bool last) {
  last_micro_batch_ = last;
  last_pass_ = false;
  pass_ = Pass::Forward;
  forward_is_under_way_ = false;
  for (Unit* unit : units_) unit->begin_micro_batch();
}

void WrappedModel::begin_backward(bool last) {
  pass_ = Pass::Backward;
  last_pass_ = last;
  for (Unit* unit : units_) unit->begin_backward();
}

void WrappedModel::end_backward() {
  // A unit that the loss reached only in part is done all the same.
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i]->state().phase != Phase::Backward) continue;
    put_in_place(i);
    finish_unit_backward(i);
  }
}

void WrappedModel::end_micro_batch() {
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = *units_[i];
    if (unit.state().phase == Phase::Forward) {
      put_in_place(i);
      unit.move(Event::EndForward);
    }
    if (unit.awaits_gradients() && unit.state().phase != Phase::Idle) reduce(i);
    micro_batch_ended(i);
  }
  if (units_.size() == 1 && !last_micro_batch_) limit_reductions(0);
  pass_ = Pass::None;
}

void WrappedModel::finish_gradients() {
  limit_reductions(0);
  if (completed_) {
    for (size_t i = units_.size(); i-- > 0;)  // in the order in which they were sent
      if (!units_[i]->was_handed_over()) hand_over(i);
    return;
  }
  for (Unit* unit : units_) unit->finish_reduce();
  context_.wait_for_home();
}

void WrappedModel::end_step() {
  for (Unit* unit : units_) unit->drop_gradients();
}

void WrappedModel::abandon() {
  pass_ = Pass::None;
  context_.worker().drop();
  context_.wait_for_home();
  updating_.clear();
  for (Unit* unit : units_) {
    unit->move(Event::Abandon);
    unit->drop_gradients();
  }
}

void WrappedModel::set_captured(bool captured) {
  context_.group->set_captured(captured);
  if (context_.copies != nullptr) context_.copies->set_captured(captured);
}

void WrappedModel::watch_replay() {
  context_.group->watch_replay();
  if (context_.copies != nullptr) context_.copies->watch_replay();
}

// ---- gradients that are whole ------------------------------------------------------------------

void WrappedModel::gradients_added(const models::ParamLayer& layer) {
  const size_t index = unit_of(layer);
  if (units_[index]->gradients_added()) reduce(index);
}

void WrappedModel::reduce(size_t index) {
  Unit& unit = *units_[index];
  if (options_.no_sync && !last_micro_batch_) return unit.keep_gradients();
  // Before the unit's own row is allocated: else there is one row more than may be under way.
  limit_reductions(kReductionsUnderWay - 1);
  unit.start_reduce(last_micro_batch_, /*keeps_rows=*/completed_ && last_micro_batch_);
  hand_over_if_ready(index);
}

void WrappedModel::limit_reductions(size_t most) {
  if (context_.copies == nullptr) return finish_reductions(Unit::Stage::Inside, most);
  // What was sent at the last call had the time of a unit's computation: its sum goes on across the
  // copies, whose links are the slower ones, and has that of two. Every rank does this in the same
  // order, at the same places of its step: so do its partners.
  finish_reductions(Unit::Stage::Across, most);
  while (count_in(Unit::Stage::Inside) > 0)
    units_[oldest_in(Unit::Stage::Inside)]->reduce_oldest_across();
  if (most == 0) finish_reductions(Unit::Stage::Across, 0);
}

size_t WrappedModel::count_in(Unit::Stage stage) const {
  size_t count = 0;
  for (const Unit* unit : units_) count += unit->reductions_under_way(stage);
  return count;
}

size_t WrappedModel::oldest_in(Unit::Stage stage) const {
  size_t oldest = units_.size();
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i]->reductions_under_way(stage) == 0) continue;
    if (oldest == units_.size() ||
        units_[i]->oldest_reduction(stage) < units_[oldest]->oldest_reduction(stage))
      oldest = i;
  }
  return oldest;
}

void WrappedModel::finish_reductions(Unit::Stage stage, size_t left) {
  for (size_t under_way = count_in(stage); under_way > left; --under_way) {
    const size_t oldest = oldest_in(stage);
    units_[oldest]->finish_oldest_reduce();
    hand_over_if_ready(oldest);
  }
}

bool WrappedModel::hands_over_early() const {
  return completed_ && last_micro_batch_ && last_pass_;
}

// Gradients may be complete while layers of the unit still run backwards and read its values, or
// will in another pass.
void WrappedModel::hand_over_if_ready(size_t index) {
  if (hands_over_early() && units_[index]->is_ready()) hand_over(index);
}

void WrappedModel::hand_over(size_t index) {
  Unit& unit = *units_[index];
  unit.set_handed_over();
  unit.finish_reduce();
  if (!parts_of_unit_[index].empty()) {
    // The host's memory for gradients is bounded: the backward pass waits where updates are slower.
    if (unit.traits().is_offloaded) context_.worker().wait(kUpdatesBeside - 1);
    completed_(unit.name(), parts_of_unit_[index]);
  }
  if (!unit.traits().is_offloaded) return unit.drop_gradients();
  updating_.push_back({index, context_.worker().added()});
  free_updated();
}

void WrappedModel::free_updated() {
  const int64_t ended = context_.worker().ended();
  for (; !updating_.empty() && updating_.front().job <= ended; updating_.pop_front())
    units_[updating_.front().unit]->drop_gradients();
}

// ---- the uses of a layer -----------------------------------------------------------------------

void WrappedModel::before_forward(const models::ParamLayer& layer) {
  const size_t index = unit_of(layer);
  if (pass_ == Pass::Backward) return use_backward(index);  // a recomputed block
  if (pass_ == Pass::None) return check_use_outside(layer);
  put_in_place(index);
  Unit& unit = *units_[index];
  const bool is_first = unit.state().phase == Phase::Idle;
  unit.move(Event::UseForward);
  if (!is_first) return;
  if (timeline_ != nullptr) unit.begin_span(*timeline_, "forward");
  forward_began(index);
}

void WrappedModel::after_forward(const models::ParamLayer& layer, bool in_graph) {
  const size_t index = unit_of(layer);
  Unit& unit = *units_[index];
  if (pass_ == Pass::Backward) return unit.ran_again(in_graph);
  if (pass_ == Pass::None || !unit.ran_forward(in_graph)) return;
  unit.move(Event::EndForward);
  if (timeline_ != nullptr) unit.end_span(*timeline_);
  forward_ended(index);
  // What the micro-batch before sent had the time of a unit's computation. It is gone before
  // activations pile up: the peak does not depend on the number of micro-batches.
  if (!forward_is_under_way_) limit_reductions(0);
  forward_is_under_way_ = true;
}

void WrappedModel::before_backward(const models::ParamLayer& layer) {
  if (pass_ == Pass::Backward) use_backward(unit_of(layer));
}

void WrappedModel::use_backward(size_t index) {
  put_in_place(index);
  Unit& unit = *units_[index];
  const bool is_first = unit.state().phase != Phase::Backward;
  unit.move(Event::UseBackward);
  if (!is_first) return;
  if (timeline_ != nullptr) unit.begin_span(*timeline_, "backward");
  backward_began(index);
}

void WrappedModel::after_backward(const models::ParamLayer& layer) {
  if (pass_ != Pass::Backward) return;
  const size_t index = unit_of(layer);
  if (units_[index]->ran_backward(layer.trainable())) finish_unit_backward(index);
}

void WrappedModel::finish_unit_backward(size_t index) {
  Unit& unit = *units_[index];
  unit.end_backward();
  if (timeline_ != nullptr) unit.end_span(*timeline_);
  backward_ended(index, last_pass_);
  hand_over_if_ready(index);
}

}  // namespace moonshard::sharding
