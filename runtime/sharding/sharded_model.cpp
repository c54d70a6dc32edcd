#include "runtime/sharding/sharded_model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/core/device.h"
#include "runtime/sharding/unwrapped.h"

namespace moonshard::sharding {
namespace {

// Gradients of so many units may be on their way before the oldest is waited for: enough to keep a
// link busy, few enough to bound memory.
constexpr size_t kReductionsUnderWay = 2;

Strategy strategy_of(const ShardingOptions& options) {
  if (options.parallel == "ddp") return Strategy::Ddp;
  if (options.sharding == "zero2") return Strategy::Zero2;
  return options.sharding == "zero3" ? Strategy::Zero3 : Strategy::Zero2Replicated;
}

}  // namespace

ShardedModel::ShardedModel(models::Model& model, const ShardingOptions& options,
                           std::shared_ptr<comm::Communicator> group)
    : model_(model), options_(options) {
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
  const models::ModelOptions& shapes = model.options();
  context_.strategy = strategy_of(options);
  context_.group = std::move(group);
  context_.device = resolve_device(shapes.device);
  context_.home = options.cpu_offload && gathers() ? c10::Device(c10::kCPU) : context_.device;
  context_.type = dtype_from_name(shapes.dtype);
  context_.compute_type = model.seam().compute_type;
  context_.sum_type = context_.compute_type == at::kDouble || context_.type == at::kDouble
                          ? at::kDouble
                          : at::kFloat;
  context_.reduce_type =
      options.reduce_dtype == "auto" ? context_.sum_type : dtype_from_name(options.reduce_dtype);
  if (context_.single()) options_.no_sync = false;  // nothing travels that could be held back
  unit_of_layer_.assign(model.layers().size(), 0);
  for (UnitPlan& plan : plan_units(model, options)) {
    for (const models::ParamLayer* layer : plan.layers)
      unit_of_layer_[layer->index] = units_.size();
    units_.push_back(
        std::make_unique<Unit>(plan.name, std::move(plan.layers), plan.parameters, context_));
    units_.back()->is_root = plan.is_root;
    const size_t first_part = updated_.size();
    units_.back()->place(model, updated_, first_elements_);
    auto& parts = parts_of_unit_.emplace_back();
    for (size_t i = first_part; i < updated_.size(); ++i) parts.push_back(i);
    for (const models::Parameter* parameter : plan.parameters)
      if (!gathers() && parameter->trainable) parts.push_back(parameter->index);
  }
  if (context_.strategy == Strategy::Zero2Replicated) {
    end_step();
    for (const auto& unit : units_) unit->finish_gather();
  }
  model.seam().keeper = this;
  model.values_are_placed();
}

ShardedModel::~ShardedModel() {
  model_.seam().keeper = nullptr;
  if (!context_.single()) return;  // the others would have to help
  try {
    expose_parameters();
  } catch (...) {  // the model then says that its numbers are gone
  }
}

const std::vector<std::unique_ptr<models::Parameter>>& ShardedModel::updated() const {
  return gathers() ? updated_ : model_.parameters();
}

int64_t ShardedModel::first_element(size_t index) const {
  return gathers() ? first_elements_[index] : 0;
}

std::vector<std::string> ShardedModel::unit_names() const {
  std::vector<std::string> names;
  for (const auto& unit : units_) names.push_back(unit->name());
  return names;
}

// ---- the step ----------------------------------------------------------------------------------

void ShardedModel::begin_step() {
  take_back();
  context_.memory.gradients = context_.memory.gradients_now;
  if (timeline_ == nullptr) context_.group->reset_traffic();
}

void ShardedModel::on_complete(Completed completed) {
  completed_ = std::move(completed);
  for (const auto& unit : units_) unit->is_complete = unit->gradients_sent = false;
}

int64_t ShardedModel::most_completed() const {
  int64_t most = 0;
  for (const auto& parts : parts_of_unit_) {
    int64_t numbers = 0;
    for (const size_t part : parts) numbers += updated()[part]->value.numel();
    most = std::max(most, numbers);
  }
  return most;
}

void ShardedModel::begin_micro_batch(bool last) {
  last_micro_batch_ = last;
  last_pass_ = false;
  pass_ = Pass::Forward;
  for (const auto& unit : units_) {
    unit->move(Event::BeginMicroBatch);
    unit->forward_uses = unit->graph_uses = 0;
    unit->gradients_pending = unit->num_trained_layers;
  }
}

void ShardedModel::begin_backward(bool last) {
  pass_ = Pass::Backward;
  last_pass_ = last;
  for (const auto& unit : units_) {
    // Layers that checkpointing runs again count themselves when they do.
    unit->backward_pending = unit->graph_uses;
    unit->trained_seen = 0;
  }
}

void ShardedModel::end_backward() {
  // A unit that the loss did not reach as a whole is done all the same.
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = *units_[i];
    if (unit.state().phase == Phase::Backward) finish_unit_backward(unit, i);
  }
}

void ShardedModel::end_micro_batch() {
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit* unit = units_[i].get();
    if (unit->state().phase == Phase::Forward) unit->move(Event::EndForward);
    if (unit->gradients_pending > 0 && unit->state().phase != Phase::Idle) reduce(i);
    if (unit->state().storage == Storage::Gathering) unit->finish_gather();
    if (unit->state().storage == Storage::Whole && context_.strategy != Strategy::Zero2Replicated)
      unit->release();
  }
  pass_ = Pass::None;
}

void ShardedModel::finish_gradients() {
  if (completed_) {
    for (size_t i = units_.size(); i-- > 0;)  // in the order in which they were sent
      if (!units_[i]->is_complete) complete(i);
    return;
  }
  for (const auto& unit : units_) unit->finish_reduce();
  context_.wait_for_copies();
}

// With offload the host would update while the device waits for its next work: at the end instead.
bool ShardedModel::hands_over_early() const {
  return completed_ && last_micro_batch_ && last_pass_ && !context_.offloads();
}

// Gradients may be whole while layers of the unit still run backwards and read its values, or will
// once more.
void ShardedModel::complete_if_ready(size_t index) {
  const Unit& unit = *units_[index];
  if (hands_over_early() && unit.gradients_sent && !unit.is_complete &&
      unit.reductions_under_way() == 0 && unit.state().phase != Phase::Backward)
    complete(index);
}

void ShardedModel::complete(size_t index) {
  Unit& unit = *units_[index];
  unit.is_complete = true;
  unit.finish_reduce();
  context_.wait_for_copies();
  if (!parts_of_unit_[index].empty()) completed_(unit.name(), parts_of_unit_[index]);
  unit.drop_gradients();
}

void ShardedModel::end_step() {
  for (const auto& unit : units_) {
    unit->drop_gradients();
    if (context_.strategy != Strategy::Zero2Replicated) continue;
    // The whole is out of date: the parts of all ranks make the new one, while nothing waits.
    if (unit->state().storage == Storage::Whole) {
      if (unit->state().phase != Phase::Idle) unit->move(Event::BeginMicroBatch);
      unit->release();
    }
    unit->start_gather();
  }
}

void ShardedModel::abandon() {
  pass_ = Pass::None;
  for (const auto& unit : units_) {
    unit->move(Event::Abandon);
    unit->drop_gradients();
    if (context_.strategy == Strategy::Zero2Replicated) continue;
    if (unit->state().storage == Storage::Gathering) unit->finish_gather();
    if (unit->state().storage == Storage::Whole) unit->release();
  }
}

// ---- the uses of a layer -----------------------------------------------------------------------

void ShardedModel::put_in_place(Unit& unit) {
  if (unit.state().storage == Storage::Sharded) unit.start_gather();
  if (unit.state().storage == Storage::Gathering) unit.finish_gather();
}

// Units ahead of this one, in the order of the pass.
void ShardedModel::prefetch(size_t from, int64_t direction) {
  const int64_t ahead = options_.limit_all_gathers ? 1 : 2;
  for (int64_t i = 1; i <= ahead; ++i) {
    const int64_t next = static_cast<int64_t>(from) + direction * i;
    if (next < 0 || next >= static_cast<int64_t>(units_.size())) return;
    Unit& unit = *units_[static_cast<size_t>(next)];
    if (unit.state().storage == Storage::Sharded) unit.start_gather();
  }
}

void ShardedModel::before_forward(const models::ParamLayer& layer) {
  Unit& unit = unit_of(layer);
  const size_t index = unit_of_layer_[layer.index];
  if (pass_ == Pass::Backward) return use_backward(unit, index);  // a block that is run again
  MS_CHECK(pass_ == Pass::Forward || exposed_ || !gathers(),
           "model '{}' is sharded: expected its layers to run inside of a training step, got a use "
           "of '{}' outside; call trainer:gather() on all ranks first",
           model_.options().model, layer.name);
  if (pass_ == Pass::None) return;
  put_in_place(unit);
  const bool first = unit.state().phase == Phase::Idle;
  unit.move(Event::UseForward);
  if (!first) return;
  begin_span(unit, "forward");
  if (options_.forward_prefetch && gathers()) prefetch(index, 1);
}

void ShardedModel::after_forward(const models::ParamLayer& layer, bool in_graph) {
  Unit& unit = unit_of(layer);
  if (pass_ == Pass::Backward) {
    unit.backward_pending += in_graph ? 1 : 0;
    return;
  }
  if (pass_ == Pass::None) return;
  unit.graph_uses += in_graph ? 1 : 0;
  if (++unit.forward_uses < static_cast<int64_t>(unit.layers().size())) return;
  unit.move(Event::EndForward);
  end_span(unit);
  // The last unit is the first that backward needs.
  const bool last = unit_of_layer_[layer.index] + 1 == units_.size();
  if (context_.strategy == Strategy::Zero3 && !unit.is_root && !last) unit.release();
}

void ShardedModel::use_backward(Unit& unit, size_t index) {
  put_in_place(unit);
  const bool first = unit.state().phase != Phase::Backward;
  unit.move(Event::UseBackward);
  if (!first) return;
  begin_span(unit, "backward");
  if (options_.backward_prefetch == "pre" && gathers()) prefetch(index, -1);
}

void ShardedModel::before_backward(const models::ParamLayer& layer) {
  if (pass_ == Pass::Backward) use_backward(unit_of(layer), unit_of_layer_[layer.index]);
}

void ShardedModel::after_backward(const models::ParamLayer& layer) {
  if (pass_ != Pass::Backward) return;
  Unit& unit = unit_of(layer);
  unit.trained_seen += layer.trainable() ? 1 : 0;
  if (--unit.backward_pending > 0 || unit.trained_seen < unit.num_trained_layers) return;
  finish_unit_backward(unit, unit_of_layer_[layer.index]);
}

void ShardedModel::finish_unit_backward(Unit& unit, size_t index) {
  unit.move(Event::EndBackward);
  end_span(unit);
  if (options_.backward_prefetch == "post" && gathers()) prefetch(index, -1);
  const bool stays = context_.strategy == Strategy::Zero2Replicated ||
                     (!last_pass_ && (context_.strategy == Strategy::Zero2 || unit.is_root));
  if (gathers() && !stays) unit.release();
  complete_if_ready(index);
}

void ShardedModel::gradients_added(const models::ParamLayer& layer) {
  Unit& unit = unit_of(layer);
  if (--unit.gradients_pending == 0) reduce(unit_of_layer_[layer.index]);
}

void ShardedModel::reduce(size_t index) {
  Unit& unit = *units_[index];
  if (options_.no_sync && !last_micro_batch_) {
    unit.gradients_pending = 0;
    return;  // they stay where they are and grow
  }
  unit.start_reduce(/*keeps_rows=*/completed_ && last_micro_batch_);
  unit.gradients_sent = last_micro_batch_;
  complete_if_ready(index);
  size_t under_way = 0;
  for (const auto& other : units_) under_way += other->reductions_under_way();
  // Oldest first: backward goes from the last unit to the first.
  for (size_t i = units_.size(); i-- > 0 && under_way > kReductionsUnderWay;) {
    while (units_[i]->reductions_under_way() > 0 && under_way > kReductionsUnderWay) {
      units_[i]->finish_oldest_reduce();
      --under_way;
    }
    complete_if_ready(i);
  }
}

// ---- whole again -------------------------------------------------------------------------------

void ShardedModel::expose_parameters() {
  if (exposed_ || !gathers()) return;
  for (const auto& unit : units_) {
    if (unit->state().storage == Storage::Gathering) unit->finish_gather();
    if (unit->state().storage == Storage::Whole) {
      if (unit->state().phase != Phase::Idle) unit->move(Event::BeginMicroBatch);
      unit->release();
    }
    unit->expose_parameters();
  }
  exposed_ = true;
}

void ShardedModel::take_back() {
  if (!exposed_) return;
  exposed_ = false;
  for (const auto& unit : units_) {
    unit->take_back_parameters();
    if (context_.strategy == Strategy::Zero2Replicated) unit->start_gather();
  }
}

void ShardedModel::expose_gradients() {
  for (const auto& unit : units_) unit->expose_gradients();
}

std::vector<KeptPart> ShardedModel::kept_parts() {
  if (!gathers()) return whole_parts(model_);
  std::vector<KeptPart> parts;
  for (const auto& unit : units_) {
    // A part may be a range of the row that is being gathered.
    if (unit->state().storage == Storage::Gathering) unit->finish_gather();
    unit->list_kept(parts, exposed_);
  }
  return parts;
}

void ShardedModel::kept_parts_changed() {
  if (!gathers()) return;
  for (const auto& unit : units_) {
    if (unit->state().storage == Storage::Whole) {
      if (unit->state().phase != Phase::Idle) unit->move(Event::BeginMicroBatch);
      unit->release();
    }
    if (exposed_) unit->forget_exposed();
    if (context_.strategy == Strategy::Zero2Replicated) unit->start_gather();
  }
  exposed_ = false;
}

void ShardedModel::record_into(std::shared_ptr<profile::Timeline> timeline) {
  timeline_ = timeline;
}

void ShardedModel::begin_span(Unit& unit, const char* what) {
  if (timeline_ != nullptr)
    unit.span = timeline_->begin("compute", std::string(what) + " " + unit.name());
}

void ShardedModel::end_span(Unit& unit) {
  if (timeline_ != nullptr) timeline_->end(unit.span);
}

// ---- without wrapper ---------------------------------------------------------------------------

std::vector<KeptPart> whole_parts(const models::Model& model) {
  std::vector<KeptPart> parts;
  for (const auto& parameter : model.parameters())
    parts.push_back({parameter.get(), 0, parameter->value.view({-1})});
  return parts;
}

std::unique_ptr<Parallel> make_parallel(models::Model& model, const ShardingOptions& options,
                                        comm::World& world) {
  if (options.parallel == "none") {
    MS_CHECK(world.size() == 1,
             "parallel: expected ddp or fsdp in a world of {} ranks, got none; each rank would "
             "train a model of its own",
             world.size());
    return std::make_unique<Unwrapped>(model);
  }
  return std::make_unique<ShardedModel>(
      model, options, world.group("train", resolve_device(model.options().device)));
}

}  // namespace moonshard::sharding
