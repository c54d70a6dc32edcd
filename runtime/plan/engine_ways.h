// What a clipping engine does with each layer of a model, before anything runs: how its norm is
// found, what is kept until the factors are known, bytes and seconds. The formulas are those that
// the engines choose by (privacy/norm_cost.h), with a machine's rates.
#pragma once

#include <compare>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/machine_profile.h"
#include "runtime/plan/planned_model.h"

namespace moonshard::plan {

enum class Kept { Nothing, Inputs, Rows };

struct LayerWay {
  Kept kept = Kept::Nothing;
  double rows_bytes = 0;  ///< of kept gradients
  bool compact = false;   ///< rows that the update can read without a sum
  bool joins = false;     ///< with the other layers of its stretch, in one launch
  double norm_s = 0;      ///< in backward, gradients that are kept included
  double sum_s = 0;       ///< behind it, or in the second backward
};

/// Ways by stretch, as the layers of PlannedModel.
struct EngineWays : ByStretch<std::vector<LayerWay>> {
  bool is_private = false;
  bool two_passes = false;
  /// Where the budget of engine auto ends among blocks that are alike: ways of those from an index
  /// on. Seconds are then the mean of all, in each of them.
  std::vector<std::pair<size_t, std::vector<LayerWay>>> later_blocks;

  const std::vector<LayerWay>& of_block(size_t index) const {
    const std::vector<LayerWay>* found = &block;
    for (const auto& [first, ways] : later_blocks)
      if (index >= first) found = &ways;
    return *found;
  }
  /// Of the layers of PlannedModel::layers_of.
  const std::vector<LayerWay>& of_stretch(const PlannedModel& model, size_t stretch) const {
    const StretchKind kind = model.kind_of(stretch);
    return kind == StretchKind::Block ? of_block(stretch - 1) : of(kind);
  }
};

/// Engines plan every micro-batch anew: rows of the last one may go to the update as they are,
/// those of the others are summed up for it.
struct StepWays {
  const EngineWays &earlier, &last;

  const EngineWays& of(bool is_last) const { return is_last ? last : earlier; }
};

struct EngineSituation {
  std::string mode;              ///< as the option
  int64_t samples = 1;           ///< of a micro-batch
  bool needs_sums = false;       ///< ranks, the host or a later micro-batch: rows are summed up
  bool per_layer = false;        ///< clipping = per_layer: nothing waits
  double budget_bytes = 1e300;   ///< of engine auto
  bool budget_is_asked = false;  ///< memory_budget_mb: beyond it backward runs twice
  bool at_most = false;          ///< engine auto: the larger way of every layer, within the budget
  std::string flash_algorithm = "auto";

  auto operator<=>(const EngineSituation&) const = default;
};

/// Unknown modes (a script's engines) count as flash_bookkeeping.
EngineWays engine_ways(const PlannedModel& model, const EngineSituation& situation,
                       const MachineProfile& machine);

}  // namespace moonshard::plan
