#include "runtime/privacy/way_choice.h"

#include <algorithm>
#include <cmath>

namespace moonshard::privacy {
namespace {

constexpr double kHopeless = 1.25;

Way total_of(const std::vector<WaysOfReaders*>& all, const std::vector<bool>& keeps_rows) {
  Way total;
  for (size_t i = 0; i < all.size(); ++i) {
    const Way& way = all[i]->of(keeps_rows[i]);
    total.add(all[i]->count * way.bytes, all[i]->count * way.cost);
  }
  return total;
}

}  // namespace

bool choose_ways(const std::vector<WaysOfReaders*>& all, const WayBudget& budget) {
  double total = budget.always_kept;
  std::vector<WaysOfReaders*> upgrades;
  for (WaysOfReaders* readers : all) {
    readers->keeps_rows = readers->rows_are_smaller();
    total += readers->count * readers->smaller().bytes;
    if (budget.takes_larger ||
        readers->larger().cost < (1 - kWorthMemory) * readers->smaller().cost)
      upgrades.push_back(readers);
  }
  if (budget.must_hold && total > budget.bytes) return false;
  std::stable_sort(upgrades.begin(), upgrades.end(),
                   [](const WaysOfReaders* x, const WaysOfReaders* y) {
                     return x->saved() * y->more_bytes() > y->saved() * x->more_bytes();
                   });
  for (WaysOfReaders* readers : upgrades) {
    const double left = budget.bytes - total, more = readers->more_bytes();
    const double changed =
        readers->count * more <= left ? readers->count : std::floor(std::max(0.0, left) / more);
    if (changed < 1) continue;
    total += changed * more;
    readers->keeps_rows = !readers->keeps_rows;
    readers->others = readers->count - changed;
  }
  return true;
}

std::optional<std::vector<bool>> other_plan(const std::vector<WaysOfReaders*>& chosen) {
  std::vector<bool> own, smaller;
  for (const WaysOfReaders* readers : chosen) {
    own.push_back(readers->keeps_rows);
    smaller.push_back(readers->rows_are_smaller());
  }
  const Way chosen_total = total_of(chosen, own);
  double cheapest = kHopeless * chosen_total.cost;
  std::optional<std::vector<bool>> other;
  for (const auto& plan : {std::vector<bool>(chosen.size(), false), smaller}) {
    const Way total = total_of(chosen, plan);
    if (plan == own || total.bytes > chosen_total.bytes || total.cost > cheapest) continue;
    cheapest = total.cost;
    other = plan;
  }
  return other;
}

}  // namespace moonshard::privacy
