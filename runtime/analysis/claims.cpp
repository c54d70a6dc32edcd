#include "runtime/analysis/claims.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/analysis/scaling.h"

namespace moonshard::analysis {
namespace {

constexpr size_t kMostShown = 6;

// Nothing when the rows differ in another axis than `axis`.
std::optional<std::string> shared_values(const Table& table, size_t a, size_t b,
                                         const std::string& axis) {
  std::vector<std::string> parts;
  for (const std::string& name : table.axes) {
    if (name == axis) continue;
    const std::string value = text_of(table.at(a, name));
    if (value != text_of(table.at(b, name))) return std::nullopt;
    parts.push_back(name + " " + value);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<Pair> pairs_on_axis(const Table& table, const std::string& axis, const Value& of,
                                const Value& to) {
  const auto has = [&](size_t row, const Value& value) {
    return table.rows[row].ok() && text_of(table.at(row, axis)) == text_of(value);
  };
  std::vector<Pair> pairs;
  for (size_t a = 0; a < table.rows.size(); ++a) {
    if (!has(a, of)) continue;
    for (size_t b = 0; b < table.rows.size(); ++b) {
      if (!has(b, to)) continue;
      if (auto at = shared_values(table, a, b, axis)) pairs.push_back({a, b, std::move(*at)});
    }
  }
  return pairs;
}

Claim judge_ratio(const RatioClaim& claim, const std::vector<PairFigures>& pairs) {
  Bounds bounds = claim.bounds;
  if (bounds.least == 1) bounds.least = 1 + kNoticeable;
  if (bounds.most == 1) bounds.most = 1 - kNoticeable;
  std::vector<std::string> texts;
  std::vector<double> ratios;
  bool holds = true;
  for (const PairFigures& pair : pairs) {
    if (std::isnan(pair.of) || !(pair.to > 0)) continue;
    const double ratio = pair.of / pair.to;
    holds = (holds || claim.only_last) && bounds.contain(ratio, ratio);
    ratios.push_back(ratio);
    texts.push_back(
        fmt::format("{:.4g}x{}", ratio, pair.at.empty() ? std::string() : " at " + pair.at));
  }
  if (ratios.empty())
    return {std::nullopt, fmt::format("no pair of {} and {} has the figure", claim.of, claim.to)};
  std::string shown = fmt::format("{}", fmt::join(texts, ", "));
  if (texts.size() > kMostShown) {
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    shown = fmt::format("{:.3g}x … {:.3g}x in {} pairs", *low, *high, ratios.size());
  }
  return {holds, fmt::format("{} / {}: {}", claim.of, claim.to, shown)};
}

Claim judge_bound(const std::vector<double>& figures, const Bounds& bounds,
                  const std::string& unit) {
  std::vector<double> known;
  std::copy_if(figures.begin(), figures.end(), std::back_inserter(known),
               [](double figure) { return !std::isnan(figure); });
  if (known.empty()) return {std::nullopt, "not measured on this machine"};
  const auto [low, high] = std::minmax_element(known.begin(), known.end());
  return {bounds.contain(*low, *high),
          fmt::format("{:.3g} … {:.3g} {} over {} points", *low, *high, unit, known.size())};
}

Claim judge_growth(const GrowthClaim& claim, const Table& table) {
  std::optional<bool> holds;
  std::vector<std::string> texts;
  for (const FamilyGrowth& growth : growth_over(table, claim.axis)) {
    if (!claim.mode.empty() && growth.family.mode != claim.mode) continue;
    for (const auto& [quantity, fit] : growth.fits) {
      if (quantity->name != claim.quantity) continue;
      const std::string verdict = verdict_text(fit.verdict);
      if (fit.verdict != ScalingFit::Verdict::Undecided) {
        const bool good = std::find(claim.verdicts.begin(), claim.verdicts.end(), verdict) !=
                          claim.verdicts.end();
        holds = holds.value_or(true) && good;
      }
      texts.push_back(fmt::format("{}: T^{:.2f}, {}; a + b T is {:.0f} % off, a + b T^2 {:.0f} %",
                                  growth.family.name, fit.exponent, verdict, 100 * fit.linear.error,
                                  100 * fit.quadratic.error));
    }
  }
  if (texts.empty()) return {std::nullopt, "fewer than two lengths have the figure"};
  std::sort(texts.begin(), texts.end());
  return {holds, fmt::format("{}", fmt::join(texts, "; "))};
}

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
