// What an engine's work on one layer takes: norms, clipped sums, rows that are kept and read. By
// the formulas that the engines choose by (privacy/norm_cost.h), with a machine's rates: as a step
// has them, and as the engine's own timings would find them (privacy/timed_ways.h).
#pragma once

#include <vector>

#include "runtime/plan/engine_ways.h"
#include "runtime/privacy/norm_cost.h"
#include "runtime/privacy/way_choice.h"

namespace moonshard::plan {

class LayerSeconds {
 public:
  LayerSeconds(const PlannedModel& model, const EngineSituation& situation,
               const MachineProfile& machine);

  double samples() const { return static_cast<double>(situation_.samples); }
  privacy::LayerShape shape_of(const PlannedLayer& layer) const;
  /// Whether the layer has the engines' kernels.
  bool by_kernel(const PlannedLayer& layer) const;

  /// How much of a GPU the layers that share a launch keep at work (gram_rounds.h).
  double busy_share(const std::vector<PlannedLayer>& layers) const;
  /// Of a norm by the engine's own choice of method, `busy` as above.
  double norm(const privacy::LayerShape& shape, double busy) const;
  /// A clipped sum of what was kept: inputs and gradients.
  double sum(const PlannedLayer& layer, const privacy::LayerShape& shape) const;
  /// A plain product of value and gradient, as a head in chunks has it.
  double product(const privacy::LayerShape& shape) const;
  /// Bytes that are read or written by element-wise kernels.
  double moved(double bytes) const { return bytes / machine_.element_per_s; }

  /// Norms, where every sample's gradient is kept.
  double rows_norm(const privacy::LayerShape& shape) const;
  /// Rows that the update's kernel sums up in a step: more slowly than it goes on with their sum.
  double summed(const PlannedLayer& layer, double rows_bytes) const;

  /// What engine `auto` would find for layers that read one input: with inputs kept, or rows.
  privacy::WaysOfReaders timed_ways(const std::vector<const PlannedLayer*>& layers,
                                    const std::vector<LayerWay*>& ways) const;

 private:
  double share(const privacy::LayerShape& shape) const;
  double timed_share(const privacy::LayerShape& shape) const;
  double kernel_sum(const PlannedLayer& layer, const privacy::LayerShape& shape) const;
  double read(const privacy::LayerShape& shape) const;
  double ghost(const privacy::LayerShape& shape, double busy) const;
  double width(const privacy::LayerShape& shape) const;
  double timed_norms(const std::vector<const PlannedLayer*>& layers) const;
  double read_rows(double rows_bytes, double of_speed) const;
  double summed_at(const PlannedLayer& layer, double rows_bytes, double of_speed) const;

  const PlannedModel& model_;
  const EngineSituation& situation_;
  const MachineProfile& machine_;
  const DtypeRates& rates_;
  double gram_per_s_;  ///< of the ghost kernel, where all of the GPU is at work
};

}  // namespace moonshard::plan
