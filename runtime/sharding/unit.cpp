#include "runtime/sharding/unit.h"

#include <algorithm>

#include <ATen/ATen.h>
#include "runtime/core/device.h"
#include "runtime/profile/ledger.h"
#include "runtime/sharding/settle_rows.h"

namespace moonshard::sharding {
namespace {

// Parameters are aligned for matrix products: 128 bytes in 16-bit dtypes.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t position) {
  return (position + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

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

ShardingContext::ShardingContext(models::Model& model, std::shared_ptr<comm::Communicator> ranks)
    : group(std::move(ranks)),
      device(resolve_device(model.options().device)),
      type(dtype_from_name(model.options().dtype)),
      compute_type(model.seam().compute_type),
      sum_type(compute_type == at::kDouble || type == at::kDouble ? at::kDouble : at::kFloat) {}

UnitTraits::UnitTraits(const UnitSettings& settings, const ShardingContext& context)
    : compute_type(settings.dtype == "auto" ? context.compute_type
                                            : dtype_from_name(settings.dtype)),
      reduce_type(settings.reduce_dtype == "auto" ? context.sum_type
                                                  : dtype_from_name(settings.reduce_dtype)),
      reshards(settings.reshard),
      is_offloaded(settings.offload),
      copies(settings.offload && !context.device.is_cpu()),
      home(copies ? c10::Device(c10::kCPU) : context.device),
      splits(splits_master_weights(context.type, compute_type)) {}

FlatLayout::FlatLayout(const std::vector<models::Parameter*>& parameters, int own_rank, int ranks)
    : rank(own_rank), world(ranks) {
  int64_t end = 0;
  for (models::Parameter* parameter : parameters) {
    Piece piece;
    piece.parameter = parameter;
    piece.numel = parameter->value.numel();
    piece.offset = aligned(end);
    piece.shape =
        at::empty(parameter->value.sizes(), parameter->value.options().device(c10::kMeta));
    end = piece.offset + piece.numel;
    pieces.push_back(std::move(piece));
  }
  // Parts start at aligned offsets, too: with a short row the last ranks hold only padding.
  shard_size = aligned((end + world - 1) / world);
  for (Piece& piece : pieces) {
    const int64_t begin = std::max(piece.offset, shard_size * rank);
    const int64_t stop = std::min(piece.offset + piece.numel, shard_size * (rank + 1));
    piece.first = begin - piece.offset;
    piece.count = std::max<int64_t>(stop - begin, 0);
    if (piece.count == 0) piece.first = 0;
  }
}

at::Tensor FlatLayout::whole_view(const at::Tensor& row, const Piece& piece) {
  return row.narrow(0, piece.offset, piece.numel).view(piece.shape.sizes());
}

at::Tensor FlatLayout::own_view(const at::Tensor& part, const Piece& piece) const {
  const int64_t position = piece.count == 0 ? 0 : piece.offset + piece.first - shard_size * rank;
  return part.narrow(0, position, piece.count);
}

void FlatLayout::clear_gaps(at::Tensor& row) const {
  int64_t end = 0;
  const auto clear = [&](int64_t from, int64_t to) {
    if (from < to) row.narrow(0, from, to - from).zero_();
  };
  for (const Piece& piece : pieces) {
    clear(end, piece.offset);
    end = piece.offset + piece.numel;
  }
  clear(end, row.numel());
}

Unit::Unit(const UnitPlan& plan, Storage storage, ShardingContext& context)
    : context_(context),
      name_(plan.name),
      traits_(plan.settings, context),
      state_{storage, Phase::Idle},
      in_backward_(plan.in_backward),
      num_layers_(static_cast<int64_t>(plan.layers.size())) {
  for (const models::ParamLayer* layer : plan.layers)
    num_trained_layers_ += layer->trainable() ? 1 : 0;
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
  backward_is_over_ = !in_backward_;
}

bool Unit::ran_forward(bool in_graph) {
  in_graph_ += in_graph ? 1 : 0;
  return ++forward_done_ >= num_layers_;
}

bool Unit::ran_backward(bool is_trained) {
  trained_done_ += is_trained ? 1 : 0;
  return --backward_left_ <= 0 && trained_done_ >= num_trained_layers_;
}

void Unit::end_backward() {
  move(Event::EndBackward);
  backward_is_over_ = true;
}

// ---- its gradients -----------------------------------------------------------------------------

void Unit::start_reduce(bool last, bool keeps_rows) {
  const at::NoGradGuard no_grad;
  move(Event::Reduce);
  gradients_left_ = 0;
  was_sent_ = last;
  const FlatLayout& layout = trained_layout();
  if (layout.empty()) return;
  if (context_.single()) return reduce_alone(last, keeps_rows);
  const profile::OwnerScope travelling(profile::Owner::Communication);
  at::Tensor row = at::empty(
      {layout.padded()}, at::TensorOptions().dtype(traits_.reduce_type).device(context_.device));
  layout.clear_gaps(row);
  fill(row);
  context_.memory.add_in_flight(static_cast<int64_t>(row.nbytes()));
  reductions_.push_back(send(row));
  reductions_.back().place = context_.reductions_started++;
}

// By a kernel all of them at once, and sums of kept rows are formed where they are to go: pieces
// are many, and most of them small.
void Unit::fill(const at::Tensor& row) {
  const bool at_once = row.is_cuda() && row.scalar_type() == at::kFloat;
  std::vector<kernels::UpdatePart> parts;
  for (const Piece& piece : trained_layout().pieces) {
    at::Tensor slot = FlatLayout::whole_view(row, piece);
    models::Parameter& from = *piece.parameter;
    if (at_once) {
      kernels::UpdatePart& part = parts.emplace_back();
      part.value = slot;
      part.grad = from.grad;
      part.rows = from.rows;
      part.row_factors = from.row_factors;
    } else {
      settle_rows(from);
      if (from.grad.defined()) {
        slot.copy_(from.grad);
      } else {
        slot.zero_();
      }
    }
    forget_gradient(from);
  }
  if (at_once) kernels::take_gradients(parts);
}

size_t Unit::reductions_under_way(Stage stage) const {
  return static_cast<size_t>(
      std::count_if(reductions_.begin(), reductions_.end(),
                    [&](const Reduction& reduction) { return reduction.stage == stage; }));
}

int64_t Unit::oldest_reduction(Stage stage) const {
  return std::find_if(reductions_.begin(), reductions_.end(),
                      [&](const Reduction& reduction) { return reduction.stage == stage; })
      ->place;
}

void Unit::row_is_gone(Reduction& reduction) {
  if (reduction.row.defined())
    context_.memory.add_in_flight(-static_cast<int64_t>(reduction.row.nbytes()));
  reduction.row = at::Tensor();
}

void Unit::reduce_oldest_across() {
  const auto oldest =
      std::find_if(reductions_.begin(), reductions_.end(),
                   [](const Reduction& reduction) { return reduction.stage == Stage::Inside; });
  oldest->pending.wait();
  row_is_gone(*oldest);
  oldest->pending = context_.copies->all_reduce(oldest->part, name_);
  oldest->stage = Stage::Across;
}

void Unit::finish_oldest_reduce() {
  const at::NoGradGuard no_grad;
  if (context_.copies != nullptr && reductions_.front().stage == Stage::Inside)
    reduce_oldest_across();
  Reduction reduction = std::move(reductions_.front());
  reductions_.erase(reductions_.begin());
  reduction.pending.wait();
  row_is_gone(reduction);
  add_to_sums(reduction.part);
}

void Unit::finish_reduce() {
  while (!reductions_.empty()) finish_oldest_reduce();
  sums_ended();
}

at::Tensor Unit::brought_home(const at::Tensor& gradient) {
  return traits_.copies ? context_.brought_home(gradient) : gradient;
}

void Unit::add_at_home(at::Tensor& sum, const at::Tensor& gradient) {
  if (traits_.is_offloaded) return context_.add_at_home(sum, gradient);
  sum.add_(gradient);
}

void Unit::add_to_sums(const at::Tensor& part) {
  at::Tensor sums = part.to(context_.sum_type);
  const bool leaves = traits_.is_offloaded && context_.leaving;
  if (leaves && was_sent_ && !sums_.defined() && reductions_.empty()) sums_leave(sums);
  const at::Tensor arrived = brought_home(sums);
  if (sums_.defined()) return add_at_home(sums_, arrived);
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
  for (Reduction& reduction : reductions_) row_is_gone(reduction);
  reductions_.clear();
  sums_ = at::Tensor();
  for (const Piece& piece : trained_layout().pieces) forget_gradient(*piece.parameter);
  context_.memory.add_gradients(-held_gradients_);
  held_gradients_ = 0;
}

bool Unit::is_ready() const {
  return was_sent_ && !was_handed_over_ && reductions_.empty() && backward_is_over_ &&
         state_.phase != Phase::Backward;
}

void Unit::begin_span(profile::Timeline& timeline, const char* what) {
  span_ = timeline.begin("compute", std::string(what) + " " + name_);
}

}  // namespace moonshard::sharding
