#include "runtime/plan/rank_memory.h"

#include <algorithm>
#include <optional>

#include "runtime/core/device.h"
#include "runtime/models/registry.h"
#include "runtime/sharding/unit.h"
#include "runtime/sharding/unit_order.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::plan {
namespace {

// A unit's parameters of one kind, trained or frozen, as a rank keeps them: ShardedUnit::Flat.
struct PlannedRow {
  int64_t whole = 0, part = 0;  ///< elements, padding included
  int64_t kept_size = 4;        ///< bytes of a number in a part
  bool in_place = false;        ///< the computation reads the part as it lies
  bool stays = false;           ///< whole from step to step
};

int64_t size_of(at::ScalarType type) {
  return static_cast<int64_t>(c10::elementSize(type));
}

// Bytes of gathered units through forward and backward, by the decisions that training asks.
class GatheredWalk {
 public:
  GatheredWalk(const models::Model& model, const std::vector<sharding::UnitPlan>& units,
               std::vector<int64_t> bytes, const sharding::ShardingOptions& options)
      : units_(units),
        bytes_(std::move(bytes)),
        order_(options),
        is_whole_(units.size(), false),
        uses_(units.size(), 0) {
    std::vector<size_t> unit_of(model.layers().size(), 0);
    for (size_t u = 0; u < units.size(); ++u)
      for (const models::ParamLayer* layer : units[u].layers) unit_of[layer->index] = u;
    const auto append = [](std::vector<size_t>& runs, size_t unit) {
      if (runs.empty() || runs.back() != unit) runs.push_back(unit);
    };
    bool is_reached = false;  // backward ends with the first layer that is trained
    for (const auto& layer : model.layers()) {
      is_reached = is_reached || layer->trainable();
      if (models::is_adapter_name(layer->weight->name)) continue;  // runs with its linear layer
      append(forward_, unit_of[layer->index]);
      if (is_reached) append(backward_, unit_of[layer->index]);
    }
    std::reverse(backward_.begin(), backward_.end());
  }

  int64_t peak() {
    if (order_.keeps_whole())
      for (size_t u = 0; u < units_.size(); ++u) gather(u);
    const auto ahead = [this](size_t u) { gather(u); };
    pass(
        forward_,
        [&](size_t u) { order_.when_forward_begins(u, units_.size(), steps_aside(0), ahead); },
        [&](size_t u) {
          if (order_.released_after_forward(u, units_.size(), units_[u].is_root, reshards(u)))
            release(u);
        });
    const auto is_over = [this](size_t u) { return uses_[u] == 0; };
    pass(
        backward_, [&](size_t u) { order_.when_backward_begins(u, units_.size(), is_over, ahead); },
        [&](size_t u) {
          order_.when_backward_ends(u, units_.size(), is_over, ahead);
          if (order_.released_after_backward(units_[u].is_root, reshards(u), /*last_pass=*/true))
            release(u);
        });
    return peak_;
  }

 private:
  bool reshards(size_t u) const { return units_[u].settings.reshard; }
  bool steps_aside(size_t u) const { return order_.steps_aside(units_[u].is_root, reshards(u)); }

  template <class Began, class Ended>
  void pass(const std::vector<size_t>& runs, const Began& began, const Ended& ended) {
    for (const size_t u : runs) ++uses_[u];
    std::vector<bool> is_new(units_.size(), true);
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t u = runs[i];
      if (i > 0 && uses_[runs[i - 1]] > 0 && steps_aside(runs[i - 1])) release(runs[i - 1]);
      gather(u);
      if (is_new[u]) began(u);
      is_new[u] = false;
      if (--uses_[u] == 0) ended(u);
    }
  }
  void gather(size_t u) {
    if (is_whole_[u]) return;
    is_whole_[u] = true;
    now_ += bytes_[u];
    peak_ = std::max(peak_, now_);
  }
  void release(size_t u) {
    if (is_whole_[u]) now_ -= bytes_[u];
    is_whole_[u] = false;
  }

  const std::vector<sharding::UnitPlan>& units_;
  std::vector<int64_t> bytes_;
  sharding::UnitOrder order_;
  std::vector<bool> is_whole_;
  std::vector<int64_t> uses_;               ///< runs of layers that are still to come in this pass
  std::vector<size_t> forward_, backward_;  ///< units in the order in which their layers run
  int64_t now_ = 0, peak_ = 0;
};

}  // namespace

RankMemory rank_memory(const models::ModelOptions& options,
                       const sharding::ShardingOptions& sharding, int ranks,
                       int states_per_parameter, int64_t batch_size, int64_t seq_length,
                       int64_t state_bytes) {
  const int world = sharding::ranks_of_a_copy(sharding, ranks);
  models::ModelOptions shapes = options;
  shapes.device = "meta";
  const auto model = models::make_model(shapes);
  const models::ModelOptions& o = model->options();
  const at::ScalarType type = dtype_from_name(o.dtype), model_type = model->seam().compute_type;
  const int64_t size = size_of(type);
  const int64_t sum_size = type == at::kDouble || model_type == at::kDouble ? 8 : 4;
  const bool ddp = sharding.parallel == "ddp", parts = sharding.parallel == "fsdp";
  const bool replicated = sharding.sharding == "zero2_replicated";
  const bool counts_frozen = !sharding.keep_frozen || replicated;
  RankMemory memory;
  memory.data = models::family_of(o).batch_bytes(o, batch_size, seq_length);
  int64_t updated = 0, whole_gradients = 0;
  std::vector<int64_t> gathered;  // by unit
  const std::vector<sharding::UnitPlan> units = plan_units(*model, sharding);
  for (const sharding::UnitPlan& unit : units) {
    std::vector<models::Parameter*> trained, frozen;
    int64_t unit_gradients = 0;
    for (models::Parameter* parameter : unit.parameters) {
      (parameter->trainable ? trained : frozen).push_back(parameter);
      if (!parts) memory.parameters += static_cast<int64_t>(parameter->value.nbytes());
      if (parameter->trainable) unit_gradients += parameter->value.numel() * sum_size;
    }
    whole_gradients += unit_gradients;
    const int cuts = parts ? world : 1;
    const sharding::FlatLayout of_trained(trained, 0, cuts), of_frozen(frozen, 0, cuts);
    if (!trained.empty()) memory.gradients += of_trained.shard_size * sum_size;
    if (world > 1) unit_gradients = trained.empty() ? 0 : of_trained.shard_size * sum_size;
    memory.private_gradients = std::max(memory.private_gradients, unit_gradients);
    if (!parts) continue;
    // float32 in halves: the high one is in the compute dtype. Of frozen parameters there is no low
    // one: they are as the model has them.
    const at::ScalarType compute =
        unit.settings.dtype == "auto" ? model_type : dtype_from_name(unit.settings.dtype);
    const bool splits = sharding::splits_master_weights(type, compute);
    const bool on_device = !unit.settings.offload || o.device == "cpu" || options.device == "cpu";
    const auto row_of = [&](const sharding::FlatLayout& layout, at::ScalarType kept, bool stays) {
      PlannedRow row;
      row.whole = layout.padded();
      row.part = layout.shard_size;
      row.kept_size = size_of(kept);
      row.in_place = kept == compute && on_device;
      row.stays = stays;
      return row;
    };
    int64_t whole = 0;
    const auto place = [&](const PlannedRow& row, bool counts) {
      const bool stays_in_place = row.stays && row.in_place;
      memory.parameters += (stays_in_place ? row.whole : row.part) * row.kept_size;
      const int64_t bytes = row.in_place && world == 1 ? 0 : row.whole * size_of(compute);
      if (counts) whole += bytes;
      if (!counts && !stays_in_place) memory.parameters += bytes;
    };
    if (!trained.empty()) {
      place(row_of(of_trained, splits ? compute : type, replicated), /*counts=*/true);
      if (splits) memory.parameters += of_trained.shard_size * 2;
    }
    if (!frozen.empty())
      place(row_of(of_frozen, frozen.front()->value.scalar_type(),
                   replicated || sharding.keep_frozen),
            counts_frozen);
    gathered.push_back(whole);
    for (const sharding::Piece& piece : of_trained.pieces) updated += piece.count;
  }
  if (world == 1) memory.gradients = whole_gradients;  // where the engine has put them
  if (!parts) updated = whole_gradients / sum_size;
  memory.optimizer = updated * (state_bytes > 0 ? state_bytes : size) * states_per_parameter;
  if (parts) memory.gathered = GatheredWalk(*model, units, std::move(gathered), sharding).peak();
  memory.pytorch_after_model = memory.data + model->parameter_bytes();
  memory.pytorch_after_warmup = memory.data + memory.parameters + memory.optimizer +
                                (ddp ? 2 * whole_gradients : memory.gradients);
  return memory;
}

}  // namespace moonshard::plan
