#include "runtime/plan/fixed_memory.h"

#include <algorithm>

#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {

void place_fixed_memory(const PlannedModel& model, bool is_private,
                        const sharding::ShardingOptions& sharding, const MemorySituation& situation,
                        MemoryLedger& ledger, MemoryPlan& plan) {
  const bool parts = sharding.parallel == "fsdp";
  const bool in_compute_type = model.value_bytes == model.compute_bytes || model.splits;
  const auto compute = static_cast<double>(model.compute_bytes);
  const sharding::UnitOrder order(sharding);

  const auto value = static_cast<double>(model.value_bytes);
  double parameters = 0, updated = 0;
  const bool offload = parts && sharding.cpu_offload;
  const bool in_place = in_compute_type && !offload;
  const bool splits = parts && model.splits;
  const double half = splits ? 2 : value;
  for (const PlannedUnit& unit : model.units(sharding, situation.ranks)) {
    const auto trained = static_cast<double>(unit.trained_shard),
               frozen = static_cast<double>(unit.frozen_shard);
    const auto ranks = static_cast<double>(unit.ranks);
    if (!parts) continue;
    const bool stays = order.keeps_whole();
    parameters += (stays && in_place ? trained * ranks : trained) * half;
    if (splits) parameters += trained * 2;
    const bool frozen_stays = stays || sharding.keep_frozen;
    parameters += (frozen_stays && in_place ? frozen * ranks : frozen) * half;
    updated += trained;
  }
  if (!parts) {
    parameters = static_cast<double>(model.num_parameters) * value;
    // Frozen weights are kept in the compute dtype, where that is narrower.
    parameters -= static_cast<double>(model.num_parameters - model.num_trained) *
                  std::max(0.0, value - compute);
    updated = static_cast<double>(model.num_trained);
  }
  const double state =
      updated * situation.states * (situation.state_bytes > 0 ? situation.state_bytes : value);
  const auto data =
      static_cast<double>(model.batch_bytes(situation.samples) * situation.grad_accum);
  if (offload) {
    plan.host = parameters + state + updated * static_cast<double>(model.sum_bytes);
  } else {
    ledger.add(Holder::Parameters, parameters);
    ledger.add(Holder::OptimizerState, state);
  }
  ledger.add(Holder::Data, data);
  ledger.add(Holder::Rest, situation.context_bytes);
  plan.fixed = ledger.total() - situation.context_bytes;
  const bool gradients_at_once = !is_private || situation.grad_accum > 1;
  plan.floor = plan.fixed +
               (gradients_at_once && !offload ? updated * static_cast<double>(model.sum_bytes) : 0);
}

}  // namespace moonshard::plan
