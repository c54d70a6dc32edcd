#include "runtime/plan/widened_states.h"

#include <algorithm>

#include "runtime/plan/update_costs.h"

namespace moonshard::plan {
namespace {

constexpr int64_t kStatesSlice = 1 << 22;  // elements
constexpr int64_t kWideState = 4;          // bytes

bool are_narrow(const MemorySituation& situation) {
  return situation.states > 0 && situation.state_bytes == kNarrowState;
}

// Elements of the parts that an update goes through, in its order.
std::vector<int64_t> updated_parts(const PlannedModel& model,
                                   const sharding::ShardingOptions& sharding, int ranks) {
  std::vector<int64_t> parts;
  if (sharding.parallel == "fsdp") {
    for (const PlannedUnit& unit : model.units(sharding, ranks))
      if (!unit.offloads) parts.push_back(unit.trained_shard);
    return parts;
  }
  const auto add = [&](const std::vector<PlannedLayer>& layers) {
    for (const PlannedLayer& layer : layers)
      if (layer.trained) parts.push_back(layer.weight);
  };
  add(model.before);
  for (int64_t i = 0; i < model.blocks_in_backward(); ++i) add(model.block);
  add(model.last_block);
  add(model.behind);
  return parts;
}

}  // namespace

double widened_states(const MemorySituation& situation, double elements) {
  if (!are_narrow(situation)) return 0;
  return std::min(elements, static_cast<double>(kStatesSlice)) *
         static_cast<double>(kWideState * situation.states);
}

// Private steps update one part after the other, as their sums come.
double widened_at_end(const PlannedModel& model, bool is_private,
                      const sharding::ShardingOptions& sharding, const MemorySituation& situation) {
  if (!are_narrow(situation)) return 0;
  const bool one_by_one = is_private && !situation.graph;
  int64_t most = 0, now = 0;
  for (const int64_t elements : updated_parts(model, sharding, situation.ranks)) {
    for (int64_t left = elements; left > 0; left -= kStatesSlice) {
      now += std::min(left, kStatesSlice);
      most = std::max(most, now);
      if (now >= kStatesSlice) now = 0;
    }
    if (one_by_one) now = 0;
  }
  return static_cast<double>(most * kWideState * situation.states);
}

}  // namespace moonshard::plan
