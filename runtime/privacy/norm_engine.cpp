#include "runtime/privacy/norm_engine.h"

#include <ATen/ATen.h>

#include <set>

#include "runtime/privacy/faults.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/profile/owners.h"
#include "runtime/profile/zone.h"

namespace moonshard::privacy {

using models::ParamLayer;
using profile::Owner;

// Layers that share a parameter, directly or through a third, are one group.
void NormEngine::form_groups(models::Model& model) {
  const auto& layers = model.layers();
  group_of_layer_.assign(layers.size(), -1);
  groups_.clear();
  shared_.clear();
  std::map<const models::Parameter*, int64_t> owner;
  for (const auto& layer : layers) {
    if (!layer->trainable()) continue;
    require_rule(*layer);
    int64_t group = -1;
    for (const models::Parameter* parameter : {layer->weight, layer->bias}) {
      if (parameter == nullptr || !parameter->trainable) continue;
      const auto known = owner.find(parameter);
      if (known != owner.end()) group = known->second;
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
}

bool NormEngine::is_shared(const ParamLayer& layer) const {
  return shared_.contains(group_of_layer_[layer.index]);
}

void NormEngine::begin(models::Model& model, const MicroBatch& micro) {
  micro_ = micro;
  sum_type_ = model.seam().compute_type == at::kDouble ? at::kDouble : at::kFloat;
  form_groups(model);
  seen_.assign(model.layers().size(), false);
  squares_ = factors_ = at::Tensor();
  recorded_.clear();
  peak_kept_bytes_ = 0;
  in_second_pass_ = false;
  // With a bound per layer the factors are known at the seam: nothing waits, nothing runs twice.
  needs_second_pass_ = plan_keep(model, micro) == Keep::Nothing && !clipping_->per_layer();
}

void NormEngine::consume(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  const at::NoGradGuard no_grad;
  const profile::OwnerScope scope(Owner::EngineTemporaries);
  if (in_second_pass_) {
    add_gradients(layer, a, g, factors_);
    return announce_gradients(layer);
  }
  MS_CHECK(!seen_[layer.index],
           "privacy.{}: layer '{}' was used twice in one forward pass; make it two layers that "
           "share the weight (add_tied_linear), so that its norm gets the cross term",
           name(), layer.name);
  MS_ASSERT(g.size(0) == micro_.samples, "layer '{}' with {} samples in a batch of {}", layer.name,
            g.size(0), micro_.samples);
  seen_[layer.index] = true;
  Group& group = groups_[static_cast<size_t>(group_of_layer_[layer.index])];
  const LayerPlan plan = plan_layer(layer, a, g);
  if (plan.keep == Keep::Gradients) {
    const profile::Zone zone(kLocalNorms, layer.name);
    keep_gradients(group, layer, a, g);
  } else {
    at::Tensor own;
    {
      const profile::Zone zone(kLocalNorms, layer.name);
      own = layer_norm_squares(layer, a, g, plan);
    }
    if (is_shared(layer)) {
      const at::Tensor length = own.sqrt();
      group.magnitude = group.magnitude.defined() ? group.magnitude + length : length;
    }
    const at::Tensor squares = own + cross_terms(group, layer, a, g);
    group.squares = group.squares.defined() ? group.squares + squares : squares;
    const bool last_of_group = group.pending == 1;
    const bool sum_here = clipping_->per_layer();
    if (plan.keep == Keep::Inputs || !last_of_group || sum_here) {
      group.uses.push_back({&layer, a, g, sum_here ? Keep::Inputs : plan.keep});
      profile::claim(a, Owner::EngineKept);
      profile::claim(g, Owner::EngineKept);
    }
  }
  if (--group.pending == 0) complete(group);
}

at::Tensor NormEngine::layer_norm_squares(const ParamLayer& layer, const at::Tensor& a,
                                          const at::Tensor& g, const LayerPlan& plan) const {
  const at::Tensor squares =
      plan.custom_norm ? plan.custom_norm(layer, a, g) : squared_norms(layer, a, g, plan.norm);
  MS_CHECK(squares.defined() && squares.dim() == 1 && squares.size(0) == micro_.samples,
           "privacy.{}: layer '{}': expected squared norms [{}], got {}", name(), layer.name,
           micro_.samples, squares.defined() ? c10::str(squares.sizes()) : std::string("nothing"));
  return squares.to(at::kDouble);
}

// Twice the inner products with the earlier uses of the same weight.
at::Tensor NormEngine::cross_terms(const Group& group, const ParamLayer& layer, const at::Tensor& a,
                                   const at::Tensor& g) const {
  at::Tensor sum = at::zeros({micro_.samples}, g.options().dtype(at::kDouble));
  for (const Use& use : group.uses) {
    if (use.layer->weight != layer.weight || has_fault(Fault::NoCrossTerm)) continue;
    sum = sum + 2 * cross_products(*use.layer, use.a, use.g, layer, a, g);
  }
  return sum;
}

void NormEngine::keep_gradients(Group& group, const ParamLayer& layer, const at::Tensor& a,
                                const at::Tensor& g) {
  const LayerGradients gradients = per_sample_gradients(layer, a, g);
  const auto add = [&](models::Parameter* parameter, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    auto& [kept_parameter, kept] = group.per_sample[parameter->index];
    kept_parameter = parameter;
    if (!kept.defined()) {
      kept = gradient;
      profile::claim(kept, Owner::EngineKept);
      return;
    }
    if (has_fault(Fault::NoCrossTerm)) {  // the two uses' squares, as if they were two weights
      const at::Tensor parts =
          row_squares(gradient) - row_squares(kept + gradient) + row_squares(kept);
      group.squares = group.squares.defined() ? group.squares + parts : parts;
    }
    // A tied weight's uses add up before the norm is taken. Not in place: the rule may have handed
    // out a view of g.
    kept = kept + gradient;
    profile::claim(kept, Owner::EngineKept);
  };
  add(layer.weight, gradients.weight);
  add(layer.bias, gradients.bias);
}

at::Tensor NormEngine::factors_of(const at::Tensor& norms, int64_t groups) const {
  return micro_.stand_in ? at::zeros_like(norms) : clipping_->factors(norms, groups);
}

// All uses of the group's weights have been seen: its norm is whole.
void NormEngine::complete(Group& group) {
  for (const auto& [index, entry] : group.per_sample) {
    const auto& [parameter, gradient] = entry;
    if (gradient.dim() == 2 && has_fault(Fault::NoBiasTerm) && parameter->name.ends_with(".bias"))
      continue;
    const profile::Zone zone(kLocalNorms, group.name);
    const at::Tensor squares = row_squares(gradient);
    group.squares = group.squares.defined() ? group.squares + squares : squares;
  }
  if (!group.squares.defined()) return;
  std::optional<profile::Zone> zone(std::in_place, kNormStacking, group.name);
  // Rounding of a cross term may leave a tiny negative number where the gradient is zero.
  group.squares = group.squares.clamp_min(0);
  if (group.magnitude.defined()) {  // uses of one weight may cancel like positions do
    group.squares = with_rounding_of_sum(group.squares, group.magnitude, sum_type_);
    group.magnitude = at::Tensor();
  }
  squares_ = squares_.defined() ? squares_ + group.squares : group.squares;
  profile::claim(squares_, Owner::NormSamples);
  zone.reset();
  if (clipping_->per_layer()) {
    group.factors = factors_of(group.squares.sqrt(), static_cast<int64_t>(groups_.size()));
    sum_kept(group, group.factors);
  } else {  // uses that were held for the cross term only
    std::erase_if(group.uses, [](const Use& use) { return use.keep == Keep::Nothing; });
  }
  if (micro_.record_layers) {
    recorded_.push_back({group.name, group.squares.sqrt(), group.factors});
  }
  group.squares = at::Tensor();
}

// Adds the weighted sum of what the group kept, releasing each as soon as it is added.
void NormEngine::sum_kept(Group& group, const at::Tensor& factors) {
  for (Use& use : group.uses) {
    add_gradients(*use.layer, use.a, use.g, factors);
    use.a = use.g = at::Tensor();
  }
  group.uses.clear();
  for (auto& [index, entry] : group.per_sample) {
    auto& [parameter, gradient] = entry;
    const at::Tensor flat_Bn = gradient.flatten(1);
    const at::Tensor sum =
        at::matmul(factors.to(flat_Bn.scalar_type()), without_dropped(flat_Bn, factors))
            .view(gradient.sizes().slice(1));
    gradient = at::Tensor();
    at::Tensor& total = parameter->grad;
    total = total.defined() ? total.add_(sum) : sum;
    profile::claim(total, Owner::Gradients);
  }
  group.per_sample.clear();
  // In the second pass each layer speaks for itself.
  if (needs_second_pass_) return;
  for (const ParamLayer* layer : group.layers) announce_gradients(*layer);
}

ClipReport NormEngine::clip(profile::PhaseTimer& timer) {
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) {  // a weight that the loss does not reach has one use less
    if (group.pending > 0) {
      group.pending = 0;
      complete(group);
    }
  }
  MS_CHECK(squares_.defined(),
           "privacy.{}: expected the loss to depend on a trainable parameter, got none that "
           "backward reached",
           name());
  peak_kept_bytes_ = kept_now();  // grows through the backward pass and is summed up from here on
  ClipReport report;
  if (norm_reduction_) {
    timer.begin("norm_reduce");
    const profile::Zone zone(kNormReduce, "squared norms");
    squares_ = norm_reduction_(squares_);
  }
  timer.begin("clip_factors");
  {
    const profile::Zone zone(kNormFinal, "norms");
    report.norms = squares_.sqrt();
    profile::claim(report.norms, Owner::NormSamples);
  }
  if (has_fault(Fault::MicroStepNorm) && micro_.index == 1)
    report.norms = at::zeros_like(report.norms);
  if (!clipping_->per_layer()) {
    factors_ = report.factors = factors_of(report.norms, 1);
    timer.begin("clipped_sum");
    for (Group& group : groups_) sum_kept(group, factors_);
  }
  report.layers = std::move(recorded_);
  in_second_pass_ = needs_second_pass_;
  return report;
}

void NormEngine::end_second_pass() {
  in_second_pass_ = false;
}

int64_t NormEngine::kept_now() const {
  std::set<const void*> counted;
  int64_t bytes = 0;
  const auto count = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !counted.insert(tensor.storage().unsafeGetStorageImpl()).second)
      return;
    bytes += static_cast<int64_t>(tensor.storage().nbytes());
  };
  for (const Group& group : groups_) {
    for (const Use& use : group.uses) {
      count(use.a);
      count(use.g);
    }
    for (const auto& [index, entry] : group.per_sample) count(entry.second);
  }
  return bytes;
}

}  // namespace moonshard::privacy
