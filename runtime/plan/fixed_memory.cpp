#include "runtime/plan/fixed_memory.h"

#include <algorithm>

#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {
namespace {

// What the allocator gives for tensors beyond what these ask for.
class Pieces {
 public:
  explicit Pieces(const PlannedModel& model) : model_(model) {}
  void add(double bytes) { sum_ += model_.held(bytes) - bytes; }
  double sum() const { return sum_; }

 private:
  const PlannedModel& model_;
  double sum_ = 0;
};

// The optimizer has tensors of its own for every parameter, or for what a rank's part of the unit
// has of it: here the first part.
void add_states(const PlannedModel& model, const std::vector<size_t>& stretches, double elements,
                double size, int states, Pieces& pieces) {
  for (const size_t stretch : stretches) {
    for (const PlannedLayer& layer : model.layers_of(stretch)) {
      if (!layer.trained) continue;
      const double own = std::min(elements, static_cast<double>(layer.weight));
      elements -= own;
      for (int i = 0; i < states; ++i) pieces.add(own * size);
    }
  }
}

}  // namespace

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
  Pieces pieces(model);
  const double state = situation.state_bytes > 0 ? situation.state_bytes : value;
  for (const PlannedUnit& unit : model.units(sharding, situation.ranks)) {
    if (!parts) continue;
    const auto trained = static_cast<double>(unit.trained_shard),
               frozen = static_cast<double>(unit.frozen_shard);
    const auto ranks = static_cast<double>(unit.ranks);
    const bool in_place = unit.in_compute_type && !unit.offloads;
    const double half = unit.splits ? 2 : value;
    const bool stays = order.keeps_whole();
    Place& place = unit.offloads ? host : device;
    const bool frozen_stays = stays || sharding.keep_frozen;
    for (const double row :
         {(stays && in_place ? trained * ranks : trained) * half, unit.splits ? trained * 2 : 0,
          (frozen_stays && in_place ? frozen * ranks : frozen) * half}) {
      place.parameters += row;
      if (!unit.offloads) pieces.add(row);
    }
    place.updated += trained;
    if (!unit.offloads) add_states(model, unit.stretches, trained, state, situation.states, pieces);
  }
  if (!parts) {
    device.parameters = static_cast<double>(model.num_parameters) * value;
    // Frozen weights are kept in the compute dtype, where that is narrower.
    device.parameters -= static_cast<double>(model.num_parameters - model.num_trained) *
                         std::max(0.0, value - compute);
    device.updated = static_cast<double>(model.num_trained);
    for (size_t stretch = 0; stretch < model.num_stretches(); ++stretch) {
      for (const PlannedLayer& layer : model.layers_of(stretch))
        pieces.add(static_cast<double>(layer.weight) * (layer.trained ? value : compute));
      add_states(model, {stretch}, device.updated, state, situation.states, pieces);
    }
  }
  const double state_size = situation.states * state;
  const auto sum_size = static_cast<double>(model.sum_bytes);
  const auto data =
      static_cast<double>(model.batch_bytes(situation.samples) * situation.grad_accum);
  plan.host = host.parameters + host.updated * (state_size + sum_size);
  ledger.add(Holder::Parameters, device.parameters);
  ledger.add(Holder::OptimizerState, device.updated * state_size);
  ledger.add(Holder::Data, data);
  ledger.add(Holder::Rest, situation.context_bytes + pieces.sum());
  plan.fixed = ledger.total() - ledger.of(Holder::Rest);
  const bool gradients_at_once = !is_private || situation.grad_accum > 1;
  plan.floor = plan.fixed + (gradients_at_once ? device.updated * sum_size : 0);
}

}  // namespace moonshard::plan
