// Which layers have a norm together, and which parameters count for which bound.
#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/privacy/norm_engine.h"

namespace moonshard::privacy {

using models::ParamLayer;

// For the next batch.
void NormEngine::empty_groups() {
  for (Group& group : groups_) {
    group.pending = static_cast<int64_t>(group.layers.size());
    group.uses.clear();
    group.per_sample.clear();
    group.squares.clear();
    group.magnitude = at::Tensor();
  }
}

// Layers that share a parameter, directly or through a third, are one group.
void NormEngine::form_groups(models::Model& model) {
  const auto& layers = model.layers();
  FormedBy now;
  now.joins_tied_weights = hooks_->joins_tied_weights();
  now.layers.reserve(layers.size());
  now.trained.reserve(2 * layers.size());
  for (const auto& layer : layers) {
    now.layers.push_back(layer.get());
    now.trained.push_back(layer->weight->trainable);
    now.trained.push_back(layer->bias != nullptr && layer->bias->trainable);
  }
  // Those of the batch before serve again unless something was frozen or thawed since: the GPU
  // waits while groups are formed.
  if (!groups_.empty() && now == formed_by_) return empty_groups();
  formed_by_ = {};  // until they are whole
  group_of_layer_.assign(layers.size(), -1);
  groups_.clear();
  shared_.clear();
  readers_.assign(layers.size(), 0);
  std::map<const models::Parameter*, int64_t> owner;
  for (const auto& layer : layers) {
    if (!layer->trainable()) continue;
    require_rule(*layer);
    if (layer->weight->trainable)
      ++readers_[layer->same_input_as != nullptr ? layer->same_input_as->index : layer->index];
    // Cross terms are those of weights: a shared bias would leave its own out of the norm.
    MS_CHECK(!has_trained_bias(*layer) || !owner.contains(layer->bias),
             "privacy.{}: layer '{}': expected a bias of its own, got '{}', which another layer "
             "uses; give it its own, or freeze it",
             name(), layer->name, layer->bias->name);
    int64_t group = -1;
    for (const models::Parameter* parameter : {layer->weight, layer->bias}) {
      if (parameter == nullptr || !parameter->trainable) continue;
      const auto known = owner.find(parameter);
      if (known != owner.end() && now.joins_tied_weights) group = known->second;
    }
    if (group < 0) {
      group = static_cast<int64_t>(groups_.size());
      groups_.emplace_back().name = layer->name;
    }
    Group& joined = groups_[static_cast<size_t>(group)];
    joined.layers.push_back(layer.get());
    if (++joined.pending == 2) shared_.insert(group);
    group_of_layer_[layer->index] = group;
    owner[layer->weight] = group;
    if (layer->bias != nullptr) owner[layer->bias] = group;
  }
  MS_CHECK(!groups_.empty(), "privacy.{}: expected at least one trainable parameter, got none",
           name());
  if (clipping_->per_layer()) {
    shares_.assign(groups_.size(), 1 / std::sqrt(static_cast<double>(groups_.size())));
    formed_by_ = std::move(now);
    return;
  }
  shares_ = clipping_->shares();
  bound_of_.assign(model.parameters().size(), 0);
  for (const auto& parameter : model.parameters())
    if (parameter->trainable) bound_of_[parameter->index] = clipping_->group_of(parameter->name);
  for (const auto& layer : layers)
    MS_CHECK(!has_custom_norms() || !has_bias_apart(*layer),
             "privacy.{}: layer '{}': expected weight and bias in one of clip_groups, as this "
             "engine has one norm for both, got two; change its globs",
             name(), layer->name);
  formed_by_ = std::move(now);
}

size_t NormEngine::bound_of(const Group& group, const models::Parameter& parameter) const {
  return clipping_->per_layer() ? static_cast<size_t>(&group - groups_.data())
                                : bound_of_[parameter.index];
}

size_t NormEngine::weight_bound(const ParamLayer& layer) const {
  const models::Parameter& trained = layer.weight->trainable ? *layer.weight : *layer.bias;
  return bound_of(groups_[static_cast<size_t>(group_of_layer_[layer.index])], trained);
}

bool NormEngine::has_bias_apart(const ParamLayer& layer) const {
  return !clipping_->per_layer() && layer.weight->trainable && has_trained_bias(layer) &&
         bound_of_[layer.weight->index] != bound_of_[layer.bias->index];
}

void NormEngine::add_squares(std::map<size_t, at::Tensor>& sums, size_t bound,
                             const at::Tensor& squares) {
  at::Tensor& sum = sums[bound];
  sum = sum.defined() ? sum + squares : squares;
}

bool NormEngine::is_shared(const ParamLayer& layer) const {
  return shared_.contains(group_of_layer_[layer.index]);
}

int64_t NormEngine::readers(const ParamLayer& layer) const {
  const ParamLayer& first = layer.same_input_as != nullptr ? *layer.same_input_as : layer;
  return std::max<int64_t>(1, readers_[first.index]);
}

}  // namespace moonshard::privacy
