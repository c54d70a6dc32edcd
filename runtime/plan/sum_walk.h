// Clipped sums of a step, in forward order: what they add, and what engines then let go of.
// Torch-free.
#pragma once

#include <vector>

#include "runtime/plan/gather_walk.h"
#include "runtime/plan/gradient_walk.h"
#include "runtime/plan/layer_bytes.h"

namespace moonshard::plan {

class SumWalk {
 public:
  SumWalk(const PlannedModel& model, const EngineWays& ways, const MemorySituation& situation,
          const std::vector<PlannedUnit>& units, const LayerBytes& bytes, const GatherWalk& gathers,
          GradientWalk& gradients, MemoryLedger& ledger);

  void all();
  /// Bytes of rows that the update reads as they are: a graph holds them until its next replay.
  double rows_for_update() const;
  /// A weight that the head shares has its gradient since then.
  bool is_summed(const PlannedLayer& layer) const;

 private:
  void sum_one(size_t stretch, const PlannedLayer& layer, const LayerWay& way, double released);
  struct Stretch {
    const std::vector<PlannedLayer>& layers;
    const std::vector<LayerWay>& ways;
  };
  Stretch stretch(size_t index) const;
  size_t count() const { return model_.num_stretches(); }
  bool are_read_by_update(const LayerWay& way) const;
  bool goes_to_update(const LayerWay& way) const;
  bool waits_for_reduction(const LayerWay& way) const;
  double released_with_first() const;
  void reduce_completed(size_t stretch);

  const PlannedModel& model_;
  const EngineWays& ways_;
  const MemorySituation& situation_;
  const std::vector<PlannedUnit>& units_;
  const LayerBytes& bytes_;
  const GatherWalk& gathers_;
  GradientWalk& gradients_;
  MemoryLedger& ledger_;
  bool offloads_ = false;
};

}  // namespace moonshard::plan
