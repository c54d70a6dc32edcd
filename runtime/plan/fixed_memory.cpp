#include "runtime/plan/fixed_memory.h"

#include <algorithm>

#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {

void place_fixed_memory(const PlannedModel& model, bool is_private,
                        const sharding::ShardingOptions& sharding, const MemorySituation& situation,
                        MemoryLedger& ledger, MemoryPlan& plan) {
  const bool parts = sharding.parallel == "fsdp";
  const auto compute = static_cast<double>(model.compute_bytes);
  const sharding::UnitOrder order(sharding);

  const auto value = static_cast<double>(model.value_bytes);
  // Of what is on the device, and of what offload keeps on the host.
  struct Place {
    double parameters = 0, updated = 0;
  };
  Place device, host;
  for (const PlannedUnit& unit : model.units(sharding, situation.ranks)) {
    if (!parts) continue;
    const auto trained = static_cast<double>(unit.trained_shard),
               frozen = static_cast<double>(unit.frozen_shard);
    const auto ranks = static_cast<double>(unit.ranks);
    const bool in_place = unit.in_compute_type && !unit.offloads;
    const double half = unit.splits ? 2 : value;
    const bool stays = order.keeps_whole();
    Place& place = unit.offloads ? host : device;
    place.parameters += (stays && in_place ? trained * ranks : trained) * half;
    if (unit.splits) place.parameters += trained * 2;
    const bool frozen_stays = stays || sharding.keep_frozen;
    place.parameters += (frozen_stays && in_place ? frozen * ranks : frozen) * half;
    place.updated += trained;
  }
  if (!parts) {
    device.parameters = static_cast<double>(model.num_parameters) * value;
    // Frozen weights are kept in the compute dtype, where that is narrower.
    device.parameters -= static_cast<double>(model.num_parameters - model.num_trained) *
                         std::max(0.0, value - compute);
    device.updated = static_cast<double>(model.num_trained);
  }
  const double state_size =
      situation.states * (situation.state_bytes > 0 ? situation.state_bytes : value);
  const auto sum_size = static_cast<double>(model.sum_bytes);
  const auto data =
      static_cast<double>(model.batch_bytes(situation.samples) * situation.grad_accum);
  plan.host = host.parameters + host.updated * (state_size + sum_size);
  ledger.add(Holder::Parameters, device.parameters);
  ledger.add(Holder::OptimizerState, device.updated * state_size);
  ledger.add(Holder::Data, data);
  ledger.add(Holder::Rest, situation.context_bytes);
  plan.fixed = ledger.total() - situation.context_bytes;
  const bool gradients_at_once = !is_private || situation.grad_accum > 1;
  plan.floor = plan.fixed + (gradients_at_once ? device.updated * sum_size : 0);
}

}  // namespace moonshard::plan
