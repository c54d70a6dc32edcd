#include "runtime/sharding/unit.h"
#include "kernels/cast/cast.h"
#include "runtime/profile/owners.h"
#include "runtime/sharding/settle_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace moonshard::sharding {

void ShardingMemory::add_whole(int64_t bytes, int64_t units) {
  whole += bytes;
  whole_units += units;
  whole_peak = std::max(whole_peak, whole);
  whole_units_peak = std::max(whole_units_peak, whole_units);
}

void ShardingMemory::add_in_flight(int64_t bytes) {
  in_flight += bytes;
  in_flight_peak = std::max(in_flight_peak, in_flight);
}

void ShardingMemory::add_gradients(int64_t bytes) {
  gradients_now += bytes;
  gradients = std::max(gradients, gradients_now);
}

c10::Stream ShardingContext::copy_stream() {
  if (!copies_)
    copies_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return *copies_;
}

void ShardingContext::wait_for_copies() {
  if (!offloads()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

Unit::Unit(std::string name, std::vector<const models::ParamLayer*> layers,
           const std::vector<models::Parameter*>& parameters, ShardingContext& context)
    : name_(std::move(name)), layers_(std::move(layers)), context_(context) {
  // Apart, so that gradients travel of trained parameters only.
  std::vector<models::Parameter*> trained, frozen;
  for (models::Parameter* parameter : parameters)
    (parameter->trainable ? trained : frozen).push_back(parameter);
  // Nothing is cut with ddp: a row is only what travels together.
  const bool cut = context.strategy != Strategy::Ddp;
  const int rank = cut ? context.group->rank() : 0, world = cut ? context.group->size() : 1;
  trained_.layout = FlatLayout(trained, rank, world);
  frozen_.layout = FlatLayout(frozen, rank, world);
  for (const models::ParamLayer* layer : layers_) num_trained_layers += layer->trainable();
}

// One rank, one format: the part is the whole.
bool Unit::is_alias(const Flat& flat) const {
  return context_.single() && !context_.offloads() && context_.type == context_.compute_type &&
         flat.shard.defined();
}

void Unit::place(models::Model& model, std::vector<std::unique_ptr<models::Parameter>>& updated,
                 std::vector<int64_t>& first_elements) {
  const at::NoGradGuard no_grad;
  for (Flat* flat : {&trained_, &frozen_})
    if (!flat->layout.empty()) place_flat(*flat, model);
  for (const Piece& piece : trained_.layout.pieces) {
    if (context_.strategy == Strategy::Ddp) continue;
    auto part = std::make_unique<models::Parameter>();
    part->name = piece.parameter->name;
    part->index = piece.parameter->index;
    part->value = trained_.layout.own_view(trained_.shard, piece);
    trained_.updated.push_back(part.get());
    updated.push_back(std::move(part));
    first_elements.push_back(piece.first);
  }
}

void Unit::place_flat(Flat& flat, models::Model& model) {
  const FlatLayout& layout = flat.layout;
  if (context_.strategy == Strategy::Ddp) {
    for (const Piece& piece : layout.pieces) {
      at::Tensor& value = piece.parameter->value;
      if (value.is_meta()) {
        value = at::empty(piece.shape.sizes(), value.options().device(context_.device));
        model.initialise(*piece.parameter);
      }
      context_.memory.parameters += static_cast<int64_t>(value.nbytes());
    }
    return;
  }
  auto options = at::TensorOptions().dtype(context_.type).device(context_.home);
  if (context_.offloads()) options = options.pinned_memory(true);
  if (context_.strategy == Strategy::Zero2Replicated && context_.type == context_.compute_type &&
      !context_.offloads()) {
    // The part is a range of the whole that stays: updated in place, then sent to the others.
    flat.whole = at::zeros({layout.padded()}, options);
    flat.shard = flat.whole.narrow(0, layout.shard_size * layout.rank, layout.shard_size);
    context_.memory.parameters += static_cast<int64_t>(flat.whole.nbytes());
  } else {
    flat.shard = at::zeros({layout.shard_size}, options);
    context_.memory.parameters += static_cast<int64_t>(flat.shard.nbytes());
  }
  for (const Piece& piece : layout.pieces) {
    at::Tensor own = layout.own_view(flat.shard, piece);
    at::Tensor& value = piece.parameter->value;
    if (!value.is_meta()) {
      own.copy_(value.flatten().narrow(0, piece.first, piece.count));
    } else if (piece.count > 0) {
      model.initialise_range(*piece.parameter, own, piece.first);
    }
    value = piece.shape;
  }
}

void Unit::set_values(const Flat& flat, const at::Tensor& row) {
  for (const Piece& piece : flat.layout.pieces)
    piece.parameter->value = FlatLayout::whole_view(row, piece);
}

void Unit::forget_values(Flat& flat) {
  for (const Piece& piece : flat.layout.pieces) piece.parameter->value = piece.shape;
}

int64_t Unit::whole_bytes() const {
  int64_t bytes = 0;
  for (const Flat* flat : {&trained_, &frozen_}) {
    if (!flat->layout.empty() && !is_alias(*flat))
      bytes +=
          flat->layout.padded() * static_cast<int64_t>(c10::elementSize(context_.compute_type));
  }
  return bytes;
}

void Unit::start_gather() {
  const at::NoGradGuard no_grad;
  move(Event::StartGather);
  if (context_.strategy == Strategy::Ddp) return;
  context_.memory.add_whole(whole_bytes(), 1);
  for (Flat* flat : {&trained_, &frozen_})
    if (!flat->layout.empty()) gather_flat(*flat);
}

void Unit::gather_flat(Flat& flat) {
  if (is_alias(flat)) {
    flat.whole = flat.shard;
    return;
  }
  const auto options = at::TensorOptions().dtype(context_.compute_type).device(context_.device);
  const profile::OwnerScope gathered(profile::Owner::GatheredParameters);
  if (!flat.whole.defined()) flat.whole = at::empty({flat.layout.padded()}, options);
  // The part goes into its format, and with offload to the device, on the way.
  const bool as_it_is = context_.type == context_.compute_type && !context_.offloads();
  at::Tensor part = context_.single() ? flat.whole
                    : as_it_is        ? flat.shard
                                      : at::empty({flat.layout.shard_size}, options);
  std::optional<c10::StreamGuard> beside;
  if (context_.offloads()) {
    // Memory is taken on the stream of the computation, which may still use it: the copy comes
    // after that, and beside what is computed from now on.
    const c10::impl::VirtualGuardImpl guard(context_.device.type());
    c10::Event ready(context_.device.type());
    ready.record(guard.getStream(context_.device));
    ready.block(context_.copy_stream());
    beside.emplace(context_.copy_stream());
  }
  if (!as_it_is || context_.single()) {
    if (context_.offloads()) {
      part.copy_(flat.shard, /*non_blocking=*/true);
    } else {
      kernels::cast_copy(part, flat.shard);
    }
  }
  if (!context_.single()) {
    flat.gather = context_.group->all_gather(flat.whole, part, name_);
  } else if (beside) {
    flat.copied = std::make_shared<c10::Event>(context_.device.type());
    flat.copied->record(context_.copy_stream());
  }
}

void Unit::finish_gather() {
  move(Event::FinishGather);
  if (context_.strategy == Strategy::Ddp) return;
  for (Flat* flat : {&trained_, &frozen_}) {
    if (flat->layout.empty()) continue;
    flat->gather.wait();
    if (flat->copied != nullptr) {
      const c10::impl::VirtualGuardImpl guard(context_.device.type());
      flat->copied->block(guard.getStream(context_.device));
      flat->copied = nullptr;
    }
    set_values(*flat, flat->whole);
  }
}

void Unit::release() {
  move(Event::Release);
  if (context_.strategy == Strategy::Ddp) return;
  context_.memory.add_whole(-whole_bytes(), -1);
  for (Flat* flat : {&trained_, &frozen_}) {
    if (flat->layout.empty()) continue;
    forget_values(*flat);
    if (context_.strategy != Strategy::Zero2Replicated) flat->whole = at::Tensor();
  }
}

// One rank: the gradients are the sums already, each in the parameter's own memory.
void Unit::reduce_in_place(bool keeps_rows) {
  for (size_t i = 0; i < trained_.layout.pieces.size(); ++i) {
    const Piece& piece = trained_.layout.pieces[i];
    models::Parameter &from = *piece.parameter, &to = *trained_.updated[i];
    if (!keeps_rows || context_.offloads()) settle_rows(from);
    if (from.rows.defined()) {
      to.rows = from.rows.flatten(1);
      to.row_factors = from.row_factors;
      from.rows = from.row_factors = at::Tensor();
    }
    at::Tensor gradient = from.grad;
    from.grad = at::Tensor();
    if (!gradient.defined()) continue;
    gradient = brought_home(gradient.flatten());
    at::Tensor& sum = to.grad;
    if (sum.defined()) {
      context_.wait_for_copies();
      sum.add_(gradient);
    } else {
      hold_gradients(static_cast<int64_t>(gradient.nbytes()));
      sum = gradient;
    }
  }
}

void Unit::hold_gradients(int64_t bytes) {
  held_gradients_ += bytes;
  context_.memory.add_gradients(bytes);
}

void Unit::start_reduce(bool keeps_rows) {
  const at::NoGradGuard no_grad;
  move(Event::Reduce);
  gradients_pending = 0;
  if (trained_.layout.empty()) return;
  const bool ddp = context_.strategy == Strategy::Ddp;
  if (context_.single()) {
    if (!ddp) reduce_in_place(keeps_rows);  // with ddp they are where the optimizer looks for them
    return;
  }
  const FlatLayout& layout = trained_.layout;
  const profile::OwnerScope travelling(profile::Owner::Communication);
  Reduction reduction;
  reduction.row = at::empty(
      {layout.padded()}, at::TensorOptions().dtype(context_.reduce_type).device(context_.device));
  layout.clear_gaps(reduction.row);
  for (const Piece& piece : layout.pieces) {
    at::Tensor slot = FlatLayout::whole_view(reduction.row, piece);
    settle_rows(*piece.parameter);
    at::Tensor& gradient = piece.parameter->grad;
    if (gradient.defined()) {
      slot.copy_(gradient);
    } else {
      slot.zero_();
    }
    gradient = at::Tensor();
  }
  context_.memory.add_in_flight(static_cast<int64_t>(reduction.row.nbytes()));
  if (ddp) {
    reduction.part = reduction.row;
    reduction.pending = context_.group->all_reduce(reduction.row, name_);
  } else {
    reduction.part = at::empty({layout.shard_size}, reduction.row.options());
    reduction.pending = context_.group->reduce_scatter(reduction.part, reduction.row, name_);
  }
  reductions_.push_back(std::move(reduction));
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
  if (context_.strategy != Strategy::Ddp || !sums_.defined()) return;
  // Only now: a later micro-batch would have added its own gradients to the sums of all.
  for (const Piece& piece : trained_.layout.pieces)
    piece.parameter->grad = FlatLayout::whole_view(sums_, piece);
}

void Unit::add_to_sums(const at::Tensor& part) {
  const at::Tensor arrived = brought_home(part.to(context_.sum_type));
  if (sums_.defined()) {
    context_.wait_for_copies();
    sums_.add_(arrived);
    return;
  }
  sums_ = arrived;
  profile::claim(sums_, profile::Owner::Gradients);
  hold_gradients(static_cast<int64_t>(sums_.nbytes()));
  if (context_.strategy == Strategy::Ddp) return;
  for (size_t i = 0; i < trained_.layout.pieces.size(); ++i) {
    const Piece& piece = trained_.layout.pieces[i];
    if (piece.count > 0) trained_.updated[i]->grad = trained_.layout.own_view(sums_, piece);
  }
}

// With offload into pinned memory, while the computation goes on.
at::Tensor Unit::brought_home(const at::Tensor& gradient) const {
  if (!context_.offloads()) return gradient;
  const at::Tensor host =
      at::empty(gradient.sizes(), gradient.options().device(context_.home).pinned_memory(true));
  host.copy_(gradient, /*non_blocking=*/true);
  return host;
}

void Unit::drop_gradients() {
  reductions_.clear();
  sums_ = at::Tensor();
  for (const Piece& piece : trained_.layout.pieces) forget_gradient(*piece.parameter);
  for (models::Parameter* part : trained_.updated) forget_gradient(*part);
  context_.memory.add_gradients(-held_gradients_);
  held_gradients_ = 0;
}

void Unit::expose_parameters() {
  const at::NoGradGuard no_grad;
  if (context_.strategy == Strategy::Ddp) return;
  for (Flat* flat : {&trained_, &frozen_}) {
    if (flat->layout.empty()) continue;
    const at::Tensor row = at::empty(
        {flat->layout.padded()}, at::TensorOptions().dtype(context_.type).device(context_.device));
    context_.group->all_gather(row, flat->shard.to(context_.device), name_).wait();
    set_values(*flat, row);
  }
}

void Unit::take_back_parameters() {
  const at::NoGradGuard no_grad;
  if (context_.strategy == Strategy::Ddp) return;
  for (Flat* flat : {&trained_, &frozen_}) {
    for (const Piece& piece : flat->layout.pieces) {
      flat->layout.own_view(flat->shard, piece)
          .copy_(piece.parameter->value.flatten().narrow(0, piece.first, piece.count));
    }
    forget_values(*flat);
  }
}

void Unit::list_kept(std::vector<KeptPart>& parts, bool exposed) const {
  const at::NoGradGuard no_grad;
  for (const Flat* flat : {&trained_, &frozen_}) {
    for (const Piece& piece : flat->layout.pieces) {
      const at::Tensor own = flat->layout.own_view(flat->shard, piece);
      if (exposed) own.copy_(piece.parameter->value.flatten().narrow(0, piece.first, piece.count));
      parts.push_back({piece.parameter, piece.first, own});
    }
  }
}

void Unit::forget_exposed() {
  for (Flat* flat : {&trained_, &frozen_}) forget_values(*flat);
}

void Unit::expose_gradients() {
  const at::NoGradGuard no_grad;
  if (context_.strategy == Strategy::Ddp || trained_.layout.empty()) return;
  const FlatLayout& layout = trained_.layout;
  at::Tensor part = at::zeros({layout.shard_size},
                              at::TensorOptions().dtype(context_.sum_type).device(context_.device));
  for (size_t i = 0; i < layout.pieces.size(); ++i) {
    const at::Tensor& sum = trained_.updated[i]->grad;
    if (sum.defined()) layout.own_view(part, layout.pieces[i]).copy_(sum);
  }
  const at::Tensor row = at::empty({layout.padded()}, part.options());
  context_.group->all_gather(row, part, name_).wait();
  for (const Piece& piece : layout.pieces)
    piece.parameter->grad = FlatLayout::whole_view(row, piece);
}

}  // namespace moonshard::sharding
