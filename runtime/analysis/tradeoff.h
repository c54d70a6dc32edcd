// Time against memory: which points are worth choosing.
#pragma once

#include "runtime/analysis/claims.h"

namespace moonshard::analysis {

/// What a choice costs, in any units as long as all are in the same. NaN: not known.
struct Cost {
  double time = NAN, memory = NAN;
};

/// Marks the Pareto front: choices that no other beats, being at most as slow and as large and
/// better in one of the two. One whose cost is not known is not efficient.
std::vector<bool> efficient(const std::vector<Cost>& costs);

/// Engines with their costs as multiples of plain training's.
struct NamedCost {
  std::string name;
  Cost cost;
};
/// Whether `expected` has the smallest product of time and memory. Not measured where a cost is
/// missing.
Claim judge_tradeoff(const std::string& expected, const std::vector<NamedCost>& choices);

}  // namespace moonshard::analysis
