// The second half of the norm engine: from what was kept, or from a second backward pass, and the
// factors to the clipped sums. The first half, up to the factors, is norm_engine.cpp.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/privacy/norm_engine.h"

namespace moonshard::privacy {

using models::ParamLayer;

namespace {

// One launch adds to each weight once: another use of the same weight waits for it.
bool shares_weight(const std::vector<LinearTask>& tasks, const ParamLayer& layer) {
  return std::any_of(tasks.begin(), tasks.end(),
                     [&](const LinearTask& task) { return task.layer->weight == layer.weight; });
}

void add_bias(const LinearTask& task, const at::Tensor& factors) {
  add_rows(*task.layer->bias, task.g_BTo.sum(1, false, at::kFloat), factors);
}

}  // namespace

// By the layer's rule; factors of the bound that each of the two parameters counts for.
void NormEngine::add_by_rules(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  const Group& group = groups_[static_cast<size_t>(group_of_layer_[layer.index])];
  add_gradients(layer, a, g, factors_[bound_of(group, *layer.weight)],
                has_trained_bias(layer) ? factors_[bound_of(group, *layer.bias)] : at::Tensor());
}

void NormEngine::add_joined(std::vector<std::vector<LinearTask>>& joined) const {
  for (size_t bound = 0; bound < joined.size(); ++bound) {
    if (!joined[bound].empty()) add_clipped(joined[bound], factors_[bound]);
    joined[bound].clear();
  }
}

// The units of compact rows times the samples' factors: one small launch for a block, not for each
// of its layers, where all have the same factors.
at::Tensor NormEngine::weighted_units(Rows& own, const at::Tensor& factors) const {
  const at::Tensor factors_B1 = factors.to(at::kFloat).unsqueeze(1);
  if (shares_.size() > 1) return own.units.mul_(factors_B1);
  if (!std::exchange(own.launch->are_weighted, true)) own.launch->all.mul_(factors_B1);
  return own.units;
}

// Adds the weighted sum of what the group kept, releasing each as soon as it is added. Linear
// layers that kernels take are left to the caller, by bound, to be summed with others.
void NormEngine::take_sums(Group& group, std::vector<std::vector<LinearTask>>& joined) {
  joined.resize(factors_.size());
  for (Use& use : group.uses) {
    const ParamLayer& layer = *use.layer;
    const size_t bound = bound_of(group, *layer.weight);
    std::vector<LinearTask>& others = joined[bound];
    if (shares_weight(others, layer)) {  // written first, then added to: nothing is cleared before
      add_clipped(others, factors_[bound]);
      others.clear();
    }
    if (may_join(layer, use.a, use.g)) {
      others.push_back({&layer, as_positions(use.a), as_positions(use.g)});
      // Where the norm joined others its bias's rows were kept (below); where it was found by
      // itself, (a, g) are all there is.
      if (has_trained_bias(layer) && !group.per_sample.contains(layer.bias->index))
        add_bias(others.back(), factors_[bound_of(group, *layer.bias)]);
    } else {
      add_by_rules(layer, use.a, use.g);
    }
    use.a = use.g = at::Tensor();
  }
  group.uses.clear();
  for (auto& [index, own] : group.per_sample) {
    at::Tensor factors = factors_[bound_of(group, *own.parameter)];
    if (own.units.defined()) factors = weighted_units(own, factors);
    add_rows(*own.parameter, own.rows, factors);
    own = {};
  }
  group.per_sample.clear();
}

void NormEngine::announce(const Group& group) const {
  // In the second pass each layer announces its gradient itself.
  if (needs_second_pass_) return;
  for (const ParamLayer* layer : group.layers) announce(*layer);
}

void NormEngine::announce(const ParamLayer& layer) const {
  hooks_->before_reduction(layer);
  announce_gradients(layer);
}

void NormEngine::sum_one(Group& group) {
  std::vector<std::vector<LinearTask>> joined;
  take_sums(group, joined);
  add_joined(joined);
  announce(group);
}

// Block by block: a block's linear layers of one bound in one launch, then their gradients are
// announced.
void NormEngine::sum_all() {
  std::vector<std::vector<LinearTask>> joined;
  std::vector<Group*> taken;
  const auto finish = [&] {
    add_joined(joined);
    for (const Group* group : taken) announce(*group);
    taken.clear();
  };
  const auto most_joined = [&] {
    size_t most = 0;
    for (const auto& tasks : joined) most = std::max(most, tasks.size());
    return most;
  };
  for (Group& group : groups_) {
    if (!taken.empty() && (taken.front()->layers.front()->block != group.layers.front()->block ||
                           most_joined() + group.uses.size() > kMostTasks))
      finish();
    take_sums(group, joined);
    taken.push_back(&group);
  }
  finish();
}

// ---- the second backward pass ------------------------------------------------------------------

// The same (a, g) as in the first pass: now the factors are known.
void NormEngine::consume_again(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  if (!may_join(layer, a, g)) {
    add_by_rules(layer, a, g);
    return announce(layer);
  }
  if (!joined_.empty() && (joined_.front().layer->block != layer.block ||
                           shares_weight(joined_, layer) || joined_.size() == kMostTasks))
    sum_joined();
  joined_.push_back({&layer, as_positions(a), as_positions(g)});
  if (has_trained_bias(layer)) add_bias(joined_.back(), factors_[bound_of_[layer.bias->index]]);
}

void NormEngine::sum_joined() {
  if (joined_.empty()) return;
  std::vector<LinearTask> tasks;
  tasks.swap(joined_);
  std::vector<std::vector<LinearTask>> by_bound(factors_.size());
  for (const LinearTask& task : tasks)
    by_bound[bound_of_[task.layer->weight->index]].push_back(task);
  add_joined(by_bound);
  for (const LinearTask& task : tasks) announce(*task.layer);
}

}  // namespace moonshard::privacy
