#include "runtime/privacy/norm_engine.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "runtime/base/check.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"

namespace moonshard::privacy {

using models::ParamLayer;
using profile::Owner;

void NormEngine::begin(models::Model& model, const MicroBatch& micro) {
  micro_ = micro;
  sum_type_ = model.computes_in_double() ? at::kDouble : at::kFloat;
  form_groups(model);
  seen_.assign(model.layers().size(), false);
  squares_.clear();
  factors_.assign(shares_.size(), at::Tensor());
  joined_.clear();
  late_rows_.clear();
  late_squares_.clear();
  recorded_.clear();
  peak_kept_bytes_ = 0;
  in_second_pass_ = false;
  // With a bound per layer the factors are known at the seam: nothing waits, nothing runs twice.
  needs_second_pass_ = plan_keep(model, micro) == Keep::Nothing && !clipping_->per_layer();
}

NormEngine::Group& NormEngine::first_use(const ParamLayer& layer, int64_t samples) {
  MS_CHECK(!seen_[layer.index],
           "privacy.{}: layer '{}' was used twice in one forward pass; make it two layers that "
           "share the weight (add_tied_linear), so that its norm gets the cross term",
           name(), layer.name);
  MS_ASSERT(samples == micro_.samples, "layer '{}' with {} samples in a batch of {}", layer.name,
            samples, micro_.samples);
  seen_[layer.index] = true;
  return groups_[static_cast<size_t>(group_of_layer_[layer.index])];
}

void NormEngine::consume(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  const at::NoGradGuard no_grad;
  const profile::OwnerScope scope(Owner::EngineTemporaries);
  if (in_second_pass_) return consume_again(layer, a, g);
  Group& group = first_use(layer, g.size(0));
  if (adds_to_samples(group, layer)) return add_to_samples(group, layer, a, g);
  const LayerPlan plan = plan_layer(layer, a, g);
  const bool by_kernel =
      plan.keep == Keep::Gradients ? plan.compact : plan.norm.method != NormMethod::Materialize;
  if (by_kernel && !plan.custom_norm && !is_shared(layer) && may_join(layer, a, g))
    return join_launch(layer, a, g, plan);
  if (plan.keep == Keep::Gradients) {
    const profile::Zone zone(kLocalNorms, profile::kTracedGradients, layer.name);
    const LayerGradients gradients = per_sample_gradients(layer, a, g);
    keep_rows(group, layer.weight, gradients.weight);
    keep_rows(group, layer.bias, gradients.bias);
  } else {
    at::Tensor own;
    {
      const profile::Zone zone(kLocalNorms, profile::kTracedNorms, layer.name);
      own = layer_norm_squares(layer, a, g, plan);
    }
    if (is_shared(layer)) {
      const at::Tensor length = own.sqrt();
      group.magnitude = group.magnitude.defined() ? group.magnitude + length : length;
    }
    const at::Tensor squares = own + cross_terms(group, layer, a, g);
    add_squares(group.squares, weight_bound(layer), squares);
    if (has_bias_apart(layer) && hooks_->counts(*layer.bias))
      add_squares(group.squares, bound_of(group, *layer.bias), bias_squares(g));
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

bool NormEngine::takes_rows(const ParamLayer& layer) const {
  return !has_custom_norms() && has_built_in_rule(layer);
}

void NormEngine::consume_rows(const ParamLayer& layer, const at::Tensor& weight_rows,
                              const at::Tensor& bias_rows) {
  const at::NoGradGuard no_grad;
  const profile::OwnerScope scope(Owner::EngineTemporaries);
  if (in_second_pass_) {
    if (weight_rows.defined())
      add_rows(*layer.weight, weight_rows, factors_[bound_of_[layer.weight->index]]);
    if (bias_rows.defined())
      add_rows(*layer.bias, bias_rows, factors_[bound_of_[layer.bias->index]]);
    return announce(layer);
  }
  const at::Tensor& any = weight_rows.defined() ? weight_rows : bias_rows;
  Group& group = first_use(layer, any.size(0));
  keep_rows(group, layer.weight, weight_rows);
  keep_rows(group, layer.bias, bias_rows);
  if (--group.pending == 0) complete(group);
}

// ---- layers of a block in one launch -----------------------------------------------------------

void NormEngine::join_launch(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                             const LayerPlan& plan) {
  if (!joined_.empty() &&
      (joined_.front().layer->block != layer.block || joined_.size() == kMostTasks))
    launch_joined();
  // With a bound per layer the sum follows the norm at once: (a, g) are there, gradients need not
  // be.
  const bool sum_at_once = clipping_->per_layer();
  joined_.push_back({&layer, as_positions(a), as_positions(g), plan.norm.method,
                     sum_at_once ? Keep::Inputs : plan.keep,
                     plan.compact_if_smaller && !sum_at_once && keeps_compact_rows(a, g)});
  profile::claim(a, Owner::EngineKept);
  profile::claim(g, Owner::EngineKept);
}

void NormEngine::launch_joined() {
  if (joined_.empty()) return;
  std::vector<LinearTask> tasks;
  tasks.swap(joined_);
  keep_the_smaller(tasks);
  TaskNorms found;
  {
    const profile::Zone zone(kLocalNorms, profile::kTracedNorms, common_name(tasks));
    found = norms_of(tasks);
  }
  const auto units = std::make_shared<UnitsOfLaunch>(UnitsOfLaunch{found.units});
  const bool add_later = !needs_group_norms(), one_bound = shares_.size() == 1;
  if (add_later && one_bound) late_squares_[0].push_back(found.squares_nB);
  for (size_t k = 0; k < tasks.size(); ++k) {
    const LinearTask& task = tasks[k];
    Group& group = groups_[static_cast<size_t>(group_of_layer_[task.layer->index])];
    const at::Tensor own = found.squares_nB[static_cast<int64_t>(k)];
    const size_t bound = bound_of(group, *task.layer->weight);
    if (!add_later) group.squares[bound] = own;
    if (add_later && !one_bound) late_squares_[bound].push_back(own.unsqueeze(0));
    if (const kernels::KeptGradient& kept = found.kept[k]; kept.defined()) {
      models::Parameter& weight = *task.layer->weight;
      // A patch embedding's weight is not a matrix, and its rows are summed by their shape.
      std::vector<int64_t> shape = weight.value.sizes().vec();
      shape.insert(shape.begin(), kept.numbers.size(0));
      group.per_sample[weight.index] = {&weight, kept.numbers.view(shape), kept.units, units};
    } else if (task.keep != Keep::Nothing) {
      group.uses.push_back({task.layer, task.a_BTi, task.g_BTo, Keep::Inputs});
    }
    if (has_trained_bias(*task.layer))
      keep_rows(group, task.layer->bias, task.g_BTo.sum(1, false, at::kFloat));
    if (--group.pending == 0) complete(group);
  }
}

at::Tensor NormEngine::layer_norm_squares(const ParamLayer& layer, const at::Tensor& a,
                                          const at::Tensor& g, const LayerPlan& plan) const {
  NormSettings settings = plan.norm;
  settings.counts_bias =
      !has_bias_apart(layer) && (layer.bias == nullptr || hooks_->counts(*layer.bias));
  at::Tensor squares;
  if (plan.custom_norm) {
    squares = plan.custom_norm(layer, a, g);
  } else if (plan.norm.method != NormMethod::Materialize && may_join(layer, a, g)) {
    // A weight with other uses: kernels find its norm, by itself, as the cross terms come next.
    const LinearTask task{&layer, as_positions(a), as_positions(g), plan.norm.method};
    squares = norms_of({task}).squares_nB[0];
    if (has_trained_bias(layer) && settings.counts_bias)
      squares = squares + row_squares(task.g_BTo.sum(1, false, at::kFloat));
  } else {
    squares = squared_norms(layer, a, g, settings);
  }
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
    if (use.layer->weight != layer.weight) continue;
    sum = sum + 2 * cross_products(*use.layer, use.a, use.g, layer, a, g);
  }
  return sum;
}

void NormEngine::keep_rows(Group& group, models::Parameter* parameter, const at::Tensor& rows) {
  if (!rows.defined()) return;
  Rows& own = group.per_sample[parameter->index];
  own.parameter = parameter;
  if (!own.rows.defined()) {
    own.rows = rows;
    profile::claim(own.rows, Owner::EngineKept);
    return;
  }
  // A tied weight's uses add up before the norm is taken. Not in place: the rule may have handed
  // out a view of g.
  own.rows = own.rows + rows;
  profile::claim(own.rows, Owner::EngineKept);
}

at::Tensor NormEngine::factors_of(const at::Tensor& norms, double share) const {
  const at::Tensor factors = hooks_->factors(*clipping_, norms, share, micro_.index);
  return micro_.counted.defined() ? factors * micro_.counted : factors;
}

// On a GPU the squares of small rows (norm layers, biases) are many tiny launches: they wait for
// each other where no one asks for the group's own norm.
void NormEngine::add_squares_of_rows(Group& group) {
  constexpr int64_t kSmall = 1 << 16;
  for (const auto& [index, own] : group.per_sample) {
    if (own.units.defined()) continue;  // came with their norm
    const bool is_counted = hooks_->counts(*own.parameter);
    if (is_counted && (own.rows.is_cuda() || stands_in(own.rows)) && !needs_group_norms() &&
        !group.magnitude.defined() && own.rows[0].numel() <= kSmall) {
      late_rows_[bound_of(group, *own.parameter)].push_back(own.rows.flatten(1));
      continue;
    }
    const profile::Zone zone(kLocalNorms, profile::kTracedNorms, group.name);
    const at::Tensor squares =
        is_counted ? row_squares(own.rows)
                   : at::zeros({own.rows.size(0)}, own.rows.options().dtype(at::kDouble));
    add_squares(group.squares, bound_of(group, *own.parameter), squares);
  }
}

void NormEngine::add_late_squares() {
  for (const auto& [bound, rows] : late_rows_) {
    const profile::Zone zone(kLocalNorms, profile::kTracedNorms, "small parameters");
    late_squares_[bound].push_back(row_squares(at::cat(rows, 1)).unsqueeze(0));
  }
  late_rows_.clear();
  for (const auto& [bound, squares] : late_squares_) {
    const profile::Zone zone(kNormStacking, profile::kTracedNorms, "all layers");
    add_squares(squares_, bound, at::cat(squares).sum(0));
    profile::claim(squares_[bound], Owner::NormSamples);
  }
  late_squares_.clear();
}

// All uses of the group's weights have been seen: its norm is whole.
void NormEngine::complete(Group& group) {
  add_squares_of_rows(group);
  if (needs_second_pass_) group.per_sample.clear();  // the second pass has them again
  if (group.squares.empty()) return;
  std::optional<profile::Zone> zone(std::in_place, kNormStacking, profile::kTracedNorms,
                                    group.name);
  // Rounding of a cross term may leave a tiny negative number where the gradient is zero.
  for (auto& [bound, squares] : group.squares) squares = squares.clamp_min(0);
  if (group.magnitude.defined()) {  // uses of one weight may cancel like positions do
    at::Tensor& squares = group.squares[weight_bound(*group.layers.front())];
    squares = with_rounding_of_sum(squares, group.magnitude, sum_type_);
    group.magnitude = at::Tensor();
  }
  const bool counts = hooks_->counts(*group.layers.front()->weight);
  at::Tensor all;
  for (auto& [bound, squares] : group.squares) {
    if (!counts) squares.zero_();
    add_squares(squares_, bound, squares);
    profile::claim(squares_[bound], Owner::NormSamples);
    all = all.defined() ? all + squares : squares;
  }
  zone.reset();
  at::Tensor factors;
  if (clipping_->per_layer()) {
    const size_t bound = group.squares.begin()->first;
    factors = factors_of(all.sqrt(), shares_[bound]);
    factors_[bound] = factors.to(sum_type_);
    sum_one(group);
  } else {  // uses that were held for the cross term only
    std::erase_if(group.uses, [](const Use& use) { return use.keep == Keep::Nothing; });
  }
  if (micro_.record_layers) recorded_.push_back({group.name, all.sqrt(), factors});
  group.squares.clear();
}

ClipReport NormEngine::clip(profile::PhaseTimer& timer) {
  const at::NoGradGuard no_grad;
  launch_joined();
  for (Group& group : groups_) {  // a weight that the loss does not reach has one use less
    if (group.pending > 0) {
      group.pending = 0;
      complete(group);
    }
  }
  add_late_squares();
  MS_CHECK(!squares_.empty(),
           "privacy.{}: expected the loss to depend on a trainable parameter, got none that "
           "backward reached",
           name());
  peak_kept_bytes_ = kept_now();  // grows through the backward pass and is summed up from here on
  ClipReport report;
  if (norm_reduction_) {
    timer.begin("norm_reduce");
    const profile::Zone zone(kNormReduce, "squared norms");
    squares_[0] = norm_reduction_(squares_[0]);  // flat clipping alone
  }
  timer.begin("clip_factors");
  {
    const profile::Zone zone(kNormFinal, "norms");
    at::Tensor all;
    for (const auto& [bound, squares] : squares_) all = all.defined() ? all + squares : squares;
    report.norms = all.sqrt();
    profile::claim(report.norms, Owner::NormSamples);
  }
  if (!clipping_->per_layer()) {
    for (size_t bound = 0; bound < shares_.size(); ++bound) {
      const auto found =
          squares_.find(bound);  // none where the loss reaches none of its parameters
      const at::Tensor factors = found == squares_.end()
                                     ? at::zeros_like(report.norms)
                                     : factors_of(found->second.sqrt(), shares_[bound]);
      if (shares_.size() == 1) report.factors = factors;
      factors_[bound] = factors.to(sum_type_);  // once for all layers
    }
    timer.begin("clipped_sum");
    sum_all();
  }
  report.layers = std::move(recorded_);
  in_second_pass_ = needs_second_pass_;
  return report;
}

void NormEngine::end_second_pass() {
  sum_joined();
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
    for (const auto& [index, own] : group.per_sample) {
      count(own.rows);
      count(own.units);
    }
  }
  return bytes;
}

}  // namespace moonshard::privacy
