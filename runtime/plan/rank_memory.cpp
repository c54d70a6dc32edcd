#include "runtime/plan/rank_memory.h"

#include <algorithm>

#include "runtime/core/device.h"
#include "runtime/models/registry.h"
#include "runtime/sharding/unit.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::plan {
namespace {

// The most bytes of units that are gathered at one moment: the root and this many in a row.
int64_t most_gathered(const std::vector<int64_t>& units, bool has_root, size_t in_a_row) {
  const size_t first = has_root ? 1 : 0;
  int64_t most = 0;
  for (size_t i = first; i < units.size(); ++i) {
    int64_t sum = 0;
    for (size_t j = i; j < std::min(units.size(), i + in_a_row); ++j) sum += units[j];
    most = std::max(most, sum);
  }
  return most + (has_root ? units[0] : 0);
}

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
  const auto size = static_cast<int64_t>(c10::elementSize(dtype_from_name(o.dtype)));
  const auto compute = static_cast<int64_t>(c10::elementSize(model->seam().compute_type));
  const int64_t sum_size = std::max<int64_t>(size, 4);
  const bool ddp = sharding.parallel == "ddp", parts = sharding.parallel == "fsdp";
  const bool splits = parts && sharding::splits_master_weights(dtype_from_name(o.dtype),
                                                               model->seam().compute_type);
  const bool in_compute_type = size == compute || splits;
  RankMemory memory;
  memory.data = models::family_of(o).batch_bytes(o, batch_size, seq_length);
  int64_t updated = 0, whole_gradients = 0;
  std::vector<int64_t> units;
  bool has_root = false;
  for (const sharding::UnitPlan& unit : plan_units(*model, sharding)) {
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
    const int64_t padded = trained.empty() ? 0 : of_trained.padded();
    const int64_t padded_frozen = frozen.empty() ? 0 : of_frozen.padded();
    const bool counts_frozen = !sharding.keep_frozen || sharding.sharding == "zero2_replicated";
    units.push_back((padded + (counts_frozen ? padded_frozen : 0)) * compute);
    has_root = has_root || unit.is_root;
    if (!trained.empty()) memory.gradients += of_trained.shard_size * sum_size;
    if (world > 1) unit_gradients = trained.empty() ? 0 : of_trained.shard_size * sum_size;
    memory.private_gradients = std::max(memory.private_gradients, unit_gradients);
    if (!parts) continue;
    // float32 in halves: the high one is in the compute dtype, and may be a range of the whole row.
    // Of frozen parameters there is no low one.
    const bool in_place = in_compute_type && !sharding.cpu_offload;
    const bool aliased = sharding.sharding == "zero2_replicated" && in_place;
    const int64_t value = splits ? 2 : size;
    memory.parameters +=
        (aliased ? padded : padded / world) * value + (splits ? padded / world * 2 : 0);
    const bool frozen_stays = sharding.sharding == "zero2_replicated" || sharding.keep_frozen;
    memory.parameters += (frozen_stays && in_place ? padded_frozen : padded_frozen / world) * value;
    if (!counts_frozen && !in_place) memory.parameters += padded_frozen * compute;
    for (const sharding::Piece& piece : of_trained.pieces) updated += piece.count;
  }
  if (world == 1) memory.gradients = whole_gradients;  // where the engine has put them
  if (!parts) updated = whole_gradients / sum_size;
  memory.optimizer = updated * (state_bytes > 0 ? state_bytes : size) * states_per_parameter;
  const bool part_is_whole = world == 1 && in_compute_type && !sharding.cpu_offload;
  if (parts && !part_is_whole) {
    const bool stays = sharding.sharding != "zero3";
    const bool ahead = sharding.forward_prefetch || sharding.backward_prefetch != "none";
    const size_t row = stays ? units.size() : !ahead ? 1 : sharding.limit_all_gathers ? 2 : 3;
    memory.gathered = most_gathered(units, has_root, row);
  }
  memory.pytorch_after_model = memory.data + model->parameter_bytes();
  memory.pytorch_after_warmup = memory.data + memory.parameters + memory.optimizer +
                                (ddp ? 2 * whole_gradients : memory.gradients);
  return memory;
}

}  // namespace moonshard::plan
