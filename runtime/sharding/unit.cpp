#include "runtime/sharding/unit.h"

#include <ATen/ATen.h>

#include "runtime/profile/owners.h"
#include "runtime/sharding/settle_rows.h"

namespace moonshard::sharding {

Unit::Unit(std::string name, const std::vector<const models::ParamLayer*>& layers, Storage storage,
           ShardingContext& context)
    : context_(context),
      name_(std::move(name)),
      state_{storage, Phase::Idle},
      num_layers_(static_cast<int64_t>(layers.size())) {
  for (const models::ParamLayer* layer : layers) num_trained_layers_ += layer->trainable() ? 1 : 0;
}

// ---- how far the micro-batch has come ----------------------------------------------------------

void Unit::begin_micro_batch() {
  move(Event::BeginMicroBatch);
  forward_done_ = in_graph_ = 0;
  gradients_left_ = num_trained_layers_;
}

void Unit::begin_backward() {
  // Layers that checkpointing recomputes are counted when they run again.
  backward_left_ = in_graph_;
  trained_done_ = 0;
}

bool Unit::ran_forward(bool in_graph) {
  in_graph_ += in_graph ? 1 : 0;
  return ++forward_done_ >= num_layers_;
}

bool Unit::ran_backward(bool is_trained) {
  trained_done_ += is_trained ? 1 : 0;
  return --backward_left_ <= 0 && trained_done_ >= num_trained_layers_;
}

// ---- its gradients -----------------------------------------------------------------------------

void Unit::start_reduce(bool last, bool keeps_rows) {
  const at::NoGradGuard no_grad;
  move(Event::Reduce);
  gradients_left_ = 0;
  was_sent_ = last;
  const FlatLayout& layout = trained_layout();
  if (layout.empty()) return;
  if (context_.single()) return reduce_alone(keeps_rows);
  const profile::OwnerScope travelling(profile::Owner::Communication);
  at::Tensor row = at::empty(
      {layout.padded()}, at::TensorOptions().dtype(context_.reduce_type).device(context_.device));
  layout.clear_gaps(row);
  for (const Piece& piece : layout.pieces) {
    at::Tensor slot = FlatLayout::whole_view(row, piece);
    settle_rows(*piece.parameter);
    at::Tensor& gradient = piece.parameter->grad;
    if (gradient.defined()) {
      slot.copy_(gradient);
    } else {
      slot.zero_();
    }
    gradient = at::Tensor();
  }
  context_.memory.add_in_flight(static_cast<int64_t>(row.nbytes()));
  reductions_.push_back(send(row));
}

void Unit::finish_oldest_reduce() {
  const at::NoGradGuard no_grad;
  Reduction reduction = std::move(reductions_.front());
  reductions_.erase(reductions_.begin());
  reduction.pending.wait();
  context_.memory.add_in_flight(-static_cast<int64_t>(reduction.row.nbytes()));
  add_to_sums(reduction.part);
}

void Unit::finish_reduce() {
  while (!reductions_.empty()) finish_oldest_reduce();
  sums_ended();
}

void Unit::add_to_sums(const at::Tensor& part) {
  const at::Tensor arrived = context_.brought_home(part.to(context_.sum_type));
  if (sums_.defined()) {
    context_.wait_for_copies();
    sums_.add_(arrived);
    return;
  }
  sums_ = arrived;
  profile::claim(sums_, profile::Owner::Gradients);
  hold_gradients(static_cast<int64_t>(sums_.nbytes()));
  sums_began();
}

void Unit::hold_gradients(int64_t bytes) {
  held_gradients_ += bytes;
  context_.memory.add_gradients(bytes);
}

void Unit::drop_gradients() {
  for (const Reduction& reduction : reductions_)
    context_.memory.add_in_flight(-static_cast<int64_t>(reduction.row.nbytes()));
  reductions_.clear();
  sums_ = at::Tensor();
  for (const Piece& piece : trained_layout().pieces) forget_gradient(*piece.parameter);
  context_.memory.add_gradients(-held_gradients_);
  held_gradients_ = 0;
}

bool Unit::is_ready() const {
  return was_sent_ && !was_handed_over_ && reductions_.empty() && state_.phase != Phase::Backward;
}

void Unit::begin_span(profile::Timeline& timeline, const char* what) {
  span_ = timeline.begin("compute", std::string(what) + " " + name_);
}

}  // namespace moonshard::sharding
