// The second half of the norm engine: from what was kept, or from a second backward pass, and the
// factors to the clipped sums. The first half, up to the factors, is norm_engine.cpp.
#include <ATen/ATen.h>

#include <algorithm>

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

// Adds the weighted sum of what the group kept, releasing each as soon as it is added. Linear
// layers that kernels take are left to the caller, to be summed with others.
void NormEngine::take_sums(Group& group, const at::Tensor& factors,
                           std::vector<LinearTask>& joined) {
  for (Use& use : group.uses) {
    const ParamLayer& layer = *use.layer;
    if (shares_weight(joined, layer)) {  // written first, then added to: nothing is cleared before
      add_clipped(joined, factors);
      joined.clear();
    }
    if (may_join(layer, use.a, use.g)) {
      joined.push_back({&layer, as_positions(use.a), as_positions(use.g)});
      // Where the norm joined others its bias's rows were kept (below); where it was found by
      // itself, (a, g) are all there is.
      if (has_trained_bias(layer) && !group.per_sample.contains(layer.bias->index))
        add_bias(joined.back(), factors);
    } else {
      add_gradients(layer, use.a, use.g, factors);
    }
    use.a = use.g = at::Tensor();
  }
  group.uses.clear();
  for (auto& [index, own] : group.per_sample) {
    add_rows(*own.parameter, own.rows, own.scales.defined() ? factors / own.scales : factors);
    own.rows = at::Tensor();
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

void NormEngine::sum_one(Group& group, const at::Tensor& factors) {
  std::vector<LinearTask> joined;
  take_sums(group, factors, joined);
  if (!joined.empty()) add_clipped(joined, factors);
  announce(group);
}

// Block by block: a block's linear layers in one launch, then their gradients are announced.
void NormEngine::sum_all(const at::Tensor& factors) {
  std::vector<LinearTask> joined;
  std::vector<Group*> taken;
  const auto finish = [&] {
    if (!joined.empty()) add_clipped(joined, factors);
    joined.clear();
    for (const Group* group : taken) announce(*group);
    taken.clear();
  };
  for (Group& group : groups_) {
    if (!taken.empty() && (taken.front()->layers.front()->block != group.layers.front()->block ||
                           joined.size() + group.uses.size() > kMostTasks))
      finish();
    take_sums(group, factors, joined);
    taken.push_back(&group);
  }
  finish();
}

// ---- the second backward pass ------------------------------------------------------------------

// The same (a, g) as in the first pass: now the factors are known.
void NormEngine::consume_again(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  if (!may_join(layer, a, g)) {
    add_gradients(layer, a, g, factors_);
    return announce(layer);
  }
  if (!joined_.empty() && (joined_.front().layer->block != layer.block ||
                           shares_weight(joined_, layer) || joined_.size() == kMostTasks))
    sum_joined();
  joined_.push_back({&layer, as_positions(a), as_positions(g)});
  if (has_trained_bias(layer)) add_bias(joined_.back(), factors_);
}

void NormEngine::sum_joined() {
  if (joined_.empty()) return;
  std::vector<LinearTask> tasks;
  tasks.swap(joined_);
  add_clipped(tasks, factors_);
  for (const LinearTask& task : tasks) announce(*task.layer);
}

}  // namespace moonshard::privacy
