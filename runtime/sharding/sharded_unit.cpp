#include "runtime/sharding/sharded_unit.h"

#include <ATen/ATen.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/split_float/split_float.h"
#include "runtime/core/streams.h"
#include "runtime/profile/ledger.h"
#include "runtime/sharding/settle_rows.h"

namespace moonshard::sharding {

ShardedUnit::ShardedUnit(const UnitPlan& plan, Kept kept, ShardingContext& context)
    : Unit(plan, Storage::Sharded, context),
      is_root_(plan.is_root),
      counts_frozen_(kept.all || !kept.frozen) {
  // Separate rows, so that only gradients of trained parameters are communicated.
  std::vector<models::Parameter*> trained, frozen;
  for (models::Parameter* parameter : plan.parameters)
    (parameter->trainable ? trained : frozen).push_back(parameter);
  trained_.layout = FlatLayout(trained, context.group->rank(), context.group->size());
  frozen_.layout = FlatLayout(frozen, context.group->rank(), context.group->size());
  trained_.stays = kept.all;
  frozen_.stays = kept.all || kept.frozen;
  trained_.type = traits().splits ? traits().compute_type : context.type;
  if (!frozen.empty()) frozen_.type = frozen.front()->value.scalar_type();
}

bool ShardedUnit::is_read_as_it_lies(const Flat& flat) const {
  return flat.type == traits().compute_type && !traits().copies;
}

// One rank and one dtype: the part is the whole.
bool ShardedUnit::is_alias(const Flat& flat) const {
  return context_.single() && is_read_as_it_lies(flat) && flat.shard.defined();
}

void ShardedUnit::set_own_values(const Flat& flat, const Piece& piece, const at::Tensor& values) {
  at::Tensor own = flat.layout.own_view(flat.shard, piece);
  if (flat.low.defined()) {
    kernels::split_float(values.to(own.device()), own, flat.layout.own_view(flat.low, piece));
  } else {
    own.copy_(values);
  }
}

void ShardedUnit::place(models::Model& model,
                        std::vector<std::unique_ptr<models::Parameter>>& updated,
                        std::vector<int64_t>& first_elements) {
  const at::NoGradGuard no_grad;
  for (Flat* flat : {&trained_, &frozen_})
    if (!flat->layout.empty()) place_flat(*flat, model);
  for (const Piece& piece : trained_.layout.pieces) {
    auto part = std::make_unique<models::Parameter>();
    part->name = piece.parameter->name;
    part->index = piece.parameter->index;
    part->value = trained_.layout.own_view(trained_.shard, piece);
    if (trained_.low.defined()) part->low = trained_.layout.own_view(trained_.low, piece);
    trained_.updated.push_back(part.get());
    updated.push_back(std::move(part));
    first_elements.push_back(piece.first);
  }
}

void ShardedUnit::place_flat(Flat& flat, models::Model& model) {
  const FlatLayout& layout = flat.layout;
  auto options = at::TensorOptions().dtype(flat.type).device(traits().home);
  if (traits().copies) options = options.pinned_memory(true);
  if (flat.stays && is_read_as_it_lies(flat)) {
    // The part is a range of the whole row, which stays: updated in place, then gathered.
    flat.whole = at::zeros({layout.padded()}, options);
    flat.shard = flat.whole.narrow(0, layout.shard_size * layout.rank, layout.shard_size);
    context_.memory.parameters += static_cast<int64_t>(flat.whole.nbytes());
  } else {
    flat.shard = at::zeros({layout.shard_size}, options);
    context_.memory.parameters += static_cast<int64_t>(flat.shard.nbytes());
    if (&flat == &frozen_ && !counts_frozen_ && !is_alias(flat))
      context_.memory.parameters += whole_bytes(flat);
  }
  // Frozen values are never added to: the computation's half is enough.
  if (traits().splits && &flat == &trained_) {
    flat.low = at::zeros({layout.shard_size}, options.dtype(at::kShort));
    context_.memory.parameters += static_cast<int64_t>(flat.low.nbytes());
  }
  for (const Piece& piece : layout.pieces) {
    at::Tensor& value = piece.parameter->value;
    if (!value.is_meta()) {
      set_own_values(flat, piece, value.flatten().narrow(0, piece.first, piece.count));
    } else if (piece.count > 0) {
      at::Tensor own = flat.low.defined() ? at::empty({piece.count}, options.dtype(context_.type))
                                          : layout.own_view(flat.shard, piece);
      model.initialise_range(*piece.parameter, own, piece.first);
      if (flat.low.defined()) set_own_values(flat, piece, own);
    }
    value = piece.shape;
  }
}

void ShardedUnit::set_values(const Flat& flat, const at::Tensor& row) {
  for (const Piece& piece : flat.layout.pieces)
    piece.parameter->value = FlatLayout::whole_view(row, piece);
}

void ShardedUnit::forget_values(Flat& flat) {
  for (const Piece& piece : flat.layout.pieces) piece.parameter->value = piece.shape;
}

int64_t ShardedUnit::whole_bytes(const Flat& flat) const {
  return flat.layout.padded() * static_cast<int64_t>(c10::elementSize(traits().compute_type));
}

int64_t ShardedUnit::whole_bytes() const {
  int64_t bytes = 0;
  for (const Flat* flat : {&trained_, &frozen_}) {
    const bool counts = flat == &trained_ || counts_frozen_;
    if (!flat->layout.empty() && !is_alias(*flat) && counts) bytes += whole_bytes(*flat);
  }
  return bytes;
}

void ShardedUnit::start_gather() {
  const at::NoGradGuard no_grad;
  move(Event::StartGather);
  context_.memory.add_whole(whole_bytes(), 1);
  for (Flat* flat : {&trained_, &frozen_})
    if (!flat->layout.empty() && !flat->is_current) gather_flat(*flat);
}

void ShardedUnit::gather_flat(Flat& flat) {
  if (is_alias(flat)) {
    flat.whole = flat.shard;
    return;
  }
  const auto options = at::TensorOptions().dtype(traits().compute_type).device(context_.device);
  const profile::OwnerScope gathered(profile::Owner::GatheredParameters);
  if (!flat.whole.defined()) flat.whole = at::empty({flat.layout.padded()}, options);
  // The part is cast, and with offload copied to the device, on the way.
  const bool as_it_is = is_read_as_it_lies(flat);
  at::Tensor part = context_.single() ? flat.whole
                    : as_it_is        ? flat.shard
                                      : at::empty({flat.layout.shard_size}, options);
  std::optional<c10::StreamGuard> beside;
  if (traits().copies) {
    // Allocated on the compute stream, which may still use the memory: the copy waits for that,
    // then overlaps with later computation.
    const c10::impl::VirtualGuardImpl guard(context_.device.type());
    run_after(guard.getStream(context_.device), context_.copy_stream());
    beside.emplace(context_.copy_stream());
  }
  if (!as_it_is || context_.single()) part.copy_(flat.shard, /*non_blocking=*/traits().copies);
  if (!context_.single()) {
    flat.gather = context_.group->all_gather(flat.whole, part, name());
  } else if (beside) {
    flat.copied = std::make_shared<c10::Event>(context_.device.type());
    flat.copied->record(context_.copy_stream());
  }
}

void ShardedUnit::finish_gather() {
  move(Event::FinishGather);
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
  frozen_.is_current = frozen_.stays;
}

void ShardedUnit::release() {
  release_by(Event::Release);
}

void ShardedUnit::step_aside() {
  release_by(Event::StepAside);
}

void ShardedUnit::release_by(Event event) {
  move(event);
  context_.memory.add_whole(-whole_bytes(), -1);
  for (Flat* flat : {&trained_, &frozen_}) {
    if (flat->layout.empty()) continue;
    forget_values(*flat);
    if (!flat->stays) flat->whole = at::Tensor();
  }
}

void ShardedUnit::gather_ahead() {
  if (state().storage == Storage::Sharded) start_gather();
}

void ShardedUnit::end_gather() {
  if (state().storage == Storage::Gathering) finish_gather();
}

void ShardedUnit::release_idle() {
  if (!is_whole()) return;
  if (state().phase != Phase::Idle) move(Event::BeginMicroBatch);
  release();
}

// ---- gradients ---------------------------------------------------------------------------------

Unit::Reduction ShardedUnit::send(const at::Tensor& row) {
  Reduction reduction;
  reduction.row = row;
  reduction.part = at::empty({trained_.layout.shard_size}, row.options());
  reduction.pending = context_.group->reduce_scatter(reduction.part, row, name());
  return reduction;
}

// One rank: the gradients are the sums already, each in the parameter's own memory.
void ShardedUnit::reduce_alone(bool last, bool keeps_rows) {
  for (size_t i = 0; i < trained_.layout.pieces.size(); ++i) {
    const Piece& piece = trained_.layout.pieces[i];
    models::Parameter &from = *piece.parameter, &to = *trained_.updated[i];
    if (!keeps_rows || traits().is_offloaded) settle_rows(from);
    if (from.rows.defined()) {
      to.rows = from.rows.flatten(1);
      to.row_factors = from.row_factors;
      from.rows = from.row_factors = at::Tensor();
    }
    at::Tensor gradient = from.grad;
    from.grad = at::Tensor();
    if (!gradient.defined()) continue;
    gradient = gradient.flatten();
    at::Tensor& sum = to.grad;
    if (traits().is_offloaded && context_.leaving && last && !sum.defined()) {
      // 8-bit noise would be coarser than what it hides.
      if (gradient.element_size() < 4) gradient = gradient.to(at::kFloat);
      gradient = gradient.contiguous();
      context_.leaving(to, gradient);
    }
    gradient = brought_home(gradient);
    if (sum.defined()) {
      add_at_home(sum, gradient);
    } else {
      hold_gradients(static_cast<int64_t>(gradient.nbytes()));
      sum = gradient;
    }
  }
}

void ShardedUnit::sums_leave(at::Tensor& sums) {
  for (size_t i = 0; i < trained_.layout.pieces.size(); ++i) {
    const Piece& piece = trained_.layout.pieces[i];
    if (piece.count == 0) continue;
    at::Tensor own = trained_.layout.own_view(sums, piece);
    context_.leaving(*trained_.updated[i], own);
  }
}

void ShardedUnit::sums_began() {
  for (size_t i = 0; i < trained_.layout.pieces.size(); ++i) {
    const Piece& piece = trained_.layout.pieces[i];
    if (piece.count > 0) trained_.updated[i]->grad = trained_.layout.own_view(sums_, piece);
  }
}

void ShardedUnit::drop_gradients() {
  Unit::drop_gradients();
  for (models::Parameter* part : trained_.updated) forget_gradient(*part);
}

// ---- whole parameters between steps ---------------------------------------------------------

void ShardedUnit::expose_parameters() {
  const at::NoGradGuard no_grad;
  for (Flat* flat : {&trained_, &frozen_}) {
    if (flat->layout.empty()) continue;
    const at::Tensor part =
        flat->low.defined() ? kernels::joined_float(flat->shard, flat->low) : flat->shard;
    const at::Tensor row = at::empty({flat->layout.padded()},
                                     part.options().device(context_.device).pinned_memory(false));
    context_.group->all_gather(row, part.to(context_.device), name()).wait();
    set_values(*flat, row);
  }
}

void ShardedUnit::take_back_parameters() {
  const at::NoGradGuard no_grad;
  for (Flat* flat : {&trained_, &frozen_}) {
    for (const Piece& piece : flat->layout.pieces) {
      set_own_values(*flat, piece,
                     piece.parameter->value.flatten().narrow(0, piece.first, piece.count));
    }
    forget_values(*flat);
  }
  frozen_.is_current = false;
}

void ShardedUnit::list_kept(std::vector<KeptPart>& parts, bool exposed) const {
  const at::NoGradGuard no_grad;
  for (const Flat* flat : {&trained_, &frozen_}) {
    for (const Piece& piece : flat->layout.pieces) {
      if (exposed) {
        set_own_values(*flat, piece,
                       piece.parameter->value.flatten().narrow(0, piece.first, piece.count));
      }
      parts.push_back(
          {piece.parameter, piece.first, flat->layout.own_view(flat->shard, piece),
           flat->low.defined() ? flat->layout.own_view(flat->low, piece) : at::Tensor()});
    }
  }
}

void ShardedUnit::parts_changed(bool exposed) {
  frozen_.is_current = false;
  if (!exposed) return;
  for (Flat* flat : {&trained_, &frozen_}) forget_values(*flat);
}

void ShardedUnit::expose_gradients() {
  const at::NoGradGuard no_grad;
  if (trained_.layout.empty()) return;
  const FlatLayout& layout = trained_.layout;
  at::Tensor part = at::zeros({layout.shard_size},
                              at::TensorOptions().dtype(context_.sum_type).device(context_.device));
  for (size_t i = 0; i < layout.pieces.size(); ++i) {
    const at::Tensor& sum = trained_.updated[i]->grad;
    if (sum.defined()) layout.own_view(part, layout.pieces[i]).copy_(sum);
  }
  const at::Tensor row = at::empty({layout.padded()}, part.options());
  context_.group->all_gather(row, part, name()).wait();
  for (const Piece& piece : layout.pieces)
    piece.parameter->grad = FlatLayout::whole_view(row, piece);
}

}  // namespace moonshard::sharding
