// The choice of engine "auto" between two ways to a clipped sum, for layers that read one input:
// their inputs and output gradients are kept, or every sample's gradient. A small knapsack: the
// smallest set of ways is the start, and layers change to their faster way in the order of time
// saved per byte while the budget lasts. The engine decides by it and predictions foresee it
// (plan/engine_ways.h), each with costs of its own. Torch-free.
#pragma once

#include <optional>
#include <vector>

namespace moonshard::privacy {

/// What is taken instead must be faster by more than this share, where it needs more memory: memory
/// is not spent on differences that formulas and timings cannot tell.
inline constexpr double kWorthMemory = 0.05;

struct Way {
  double bytes = 0;  ///< kept until the factors are known
  double cost = 0;   ///< in any unit, the same for all
  void add(double more_bytes, double more_cost) {
    bytes += more_bytes;
    cost += more_cost;
  }
};

/// Layers that read one input keep the same: where one keeps the input, the others save nothing.
struct WaysOfReaders {
  Way inputs, rows;
  double count = 1;         ///< of such readers
  bool keeps_rows = false;  ///< the choice
  double others = 0;        ///< of count: the last, which the budget leaves with the other way

  bool rows_are_smaller() const { return rows.bytes < inputs.bytes; }
  const Way& of(bool keeping_rows) const { return keeping_rows ? rows : inputs; }
  const Way& smaller() const { return of(rows_are_smaller()); }
  const Way& larger() const { return of(!rows_are_smaller()); }
  double more_bytes() const { return larger().bytes - smaller().bytes; }
  double saved() const { return smaller().cost - larger().cost; }
};

struct WayBudget {
  double bytes = 1e300;
  double always_kept = 0;     ///< by layers that have no choice
  bool must_hold = false;     ///< it was asked for, not derived from the device's memory
  bool takes_larger = false;  ///< whatever it costs: the most that any timings could choose
};

/// Sets keeps_rows of each. False where the budget must hold and even the smallest ways are beyond
/// it: nothing is kept then, and backward runs twice.
bool choose_ways(const std::vector<WaysOfReaders*>& all, const WayBudget& budget);

/// Beside a choice: the cheaper of the plans by one rule for all, inputs or whatever is smaller, as
/// keeps_rows of each. None where neither differs, needs no more memory (a step that fits must not
/// fail because another plan is tried) and is expected to cost at most a quarter more: costs of
/// single layers are not that wrong.
std::optional<std::vector<bool>> other_plan(const std::vector<WaysOfReaders*>& chosen);

}  // namespace moonshard::privacy
