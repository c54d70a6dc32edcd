#include "runtime/analysis/tradeoff.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace moonshard::analysis {

std::vector<bool> efficient(const std::vector<Cost>& costs) {
  std::vector<size_t> order;
  for (size_t i = 0; i < costs.size(); ++i)
    if (std::isfinite(costs[i].time) && std::isfinite(costs[i].memory)) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (costs[a].time != costs[b].time) return costs[a].time < costs[b].time;
    return costs[a].memory < costs[b].memory;
  });
  std::vector<bool> is_efficient(costs.size(), false);
  // By time, each one must need less memory than all before it; equals stand beside each other.
  const Cost* best = nullptr;
  for (const size_t i : order) {
    const bool equal =
        best != nullptr && costs[i].time == best->time && costs[i].memory == best->memory;
    if (!equal && best != nullptr && costs[i].memory >= best->memory) continue;
    is_efficient[i] = true;
    best = &costs[i];
  }
  return is_efficient;
}

Claim judge_tradeoff(const std::string& expected, const std::vector<NamedCost>& choices) {
  const auto product = [](const NamedCost& choice) {
    return choice.cost.time * choice.cost.memory;
  };
  for (const NamedCost& choice : choices)
    if (!std::isfinite(product(choice)))
      return {std::nullopt, fmt::format("time and memory of {} were not measured", choice.name)};
  if (choices.empty()) return {std::nullopt, "nothing was measured"};
  const NamedCost& best = *std::min_element(
      choices.begin(), choices.end(),
      [&](const NamedCost& a, const NamedCost& b) { return product(a) < product(b); });
  std::vector<std::string> texts;
  for (const auto& [name, cost] : choices)
    texts.push_back(fmt::format("{} {:.2f}x time, {:.2f}x memory", name, cost.time, cost.memory));
  return {best.name == expected,
          fmt::format("smallest time x memory: {} ({})", best.name, fmt::join(texts, "; "))};
}

}  // namespace moonshard::analysis
