#include "runtime/plan/block_groups.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace moonshard::plan {

std::vector<BlockGroup> block_groups(const PlannedModel& model) {
  std::vector<BlockGroup> groups;
  std::map<size_t, size_t> place;
  for (size_t i = 0; i < model.block.size(); ++i) {
    const PlannedLayer& layer = model.block[i];
    if (!layer.is_matrix || layer.one_position || layer.is_adapter) continue;
    const auto [found, is_new] = place.emplace(layer.input, groups.size());
    if (is_new) {
      groups.emplace_back();
      groups.back().in = static_cast<double>(layer.in);
      groups.back().behind_norm = groups.size() % 2 == 1;
    }
    BlockGroup& group = groups[found->second];
    group.out += static_cast<double>(layer.out);
    group.layers.push_back(i);
  }
  for (size_t i = 0; i < model.block.size(); ++i) {
    if (!model.block[i].is_adapter) continue;
    const auto beside = place.find(model.block[model.block[i].beside].input);
    if (beside != place.end()) groups[beside->second].adapters.push_back(i);
  }
  return groups;
}

bool attends(const PlannedModel& model, const std::vector<BlockGroup>& groups) {
  return model.options().num_heads > 0 && groups.size() == 4;
}

bool makes_product_again(const PlannedModel& model, const std::vector<BlockGroup>& groups) {
  return model.fused && groups.size() == 4 && groups[2].out >= 2 * groups[3].in;
}

double dropout_working(const PlannedModel& model, const BlockGroup& group, double positions) {
  if (model.options().lora_dropout <= 0 || group.adapters.empty()) return 0;
  return static_cast<double>(model.compute_bytes) * positions * group.in;
}

double ordered_copies(const PlannedModel& model, double samples) {
  constexpr double kProcessors = 132;  // of an H100 or H200
  return std::ceil(kProcessors /
                   std::max(1.0, samples * static_cast<double>(model.options().num_heads)));
}

namespace {
// Capped scores are one, whatever the option says. A GPU's were measured without this.
bool scores_are_a_matrix(const PlannedModel& model) {
  const auto& o = model.options();
  return o.attention != "flash" || (o.attention_softcap > 0 && !model.fused);
}
}  // namespace

double scores_in_forward(const PlannedModel& model, double positions) {
  const auto& o = model.options();
  if (model.fused || !scores_are_a_matrix(model)) return 0;
  constexpr double kPlain = 1, kCapped = 2;
  return (o.attention_softcap > 0 ? kCapped : kPlain) * positions *
         static_cast<double>(o.num_heads * model.tokens * model.compute_bytes);
}

double attention_working(const PlannedModel& model, const std::vector<BlockGroup>& groups,
                         double positions, bool two_passes) {
  const auto& o = model.options();
  const double number = positions * static_cast<double>(model.compute_bytes);
  const double queries = static_cast<double>(o.num_heads * o.head_dim);
  if (scores_are_a_matrix(model) || (two_passes && model.fused && model.compute_bytes >= 4))
    return positions * 2 * static_cast<double>(o.num_heads * model.tokens) *
           static_cast<double>(std::max<int64_t>(4, model.compute_bytes));
  if (!model.fused) return number * queries;
  const bool in_groups = groups[0].out < 3 * queries;
  constexpr double kWide = 4;  // the queries' gradient is summed up in float32
  const double copies =
      two_passes ? ordered_copies(model, positions / static_cast<double>(model.tokens)) : 1;
  return (model.compute_bytes == 2 ? copies * kWide * positions * queries : 0) +
         (in_groups ? number * 2 * queries : 0);
}

}  // namespace moonshard::plan
