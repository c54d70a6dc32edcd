// Layers whose backward forms one sample's gradient after the other, as a head in chunks of
// positions does: (a, g) of all positions never exist, and no norm is found from them. Each
// sample's gradient is built up in float32 or wider, its norm is that of the very numbers that are
// summed later, and it is kept as the sample's row, or, where backward runs twice, let go of before
// the next one. Other uses of the weight are added to the rows before the norm is taken.
#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/fused_update/fused_update.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/privacy/norm_engine.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"

namespace moonshard::privacy {

using models::ParamLayer;
using profile::Owner;

namespace {

// [B, shape]. One sample's row is as it was made; several have one tensor.
at::Tensor rows_of(const ParamLayer& layer, int64_t samples, at::ScalarType type,
                   const models::AddSample& add) {
  if (samples == 1) {
    at::Tensor row;
    add(0, row);
    return row.unsqueeze(0);
  }
  std::vector<int64_t> shape = layer.weight->value.sizes().vec();
  shape.insert(shape.begin(), samples);
  const at::Tensor rows = at::zeros(shape, layer.seam->anchor.options().dtype(type));
  for (int64_t b = 0; b < samples; ++b) {
    at::Tensor row = rows[b];
    add(b, row);
  }
  return rows;
}

}  // namespace

void NormEngine::consume_samples(const ParamLayer& layer, int64_t samples,
                                 const models::AddSample& add) {
  const at::NoGradGuard no_grad;
  const profile::OwnerScope scope(Owner::EngineTemporaries);
  if (in_second_pass_) return sum_samples(layer, samples, add);
  Group& group = first_use(layer, samples);
  if (needs_second_pass_ && !is_shared(layer)) {
    at::Tensor squares = at::empty({samples}, layer.seam->anchor.options().dtype(at::kDouble));
    for (int64_t b = 0; b < samples; ++b) {
      at::Tensor row;
      add(b, row);
      const profile::Zone zone(kLocalNorms, profile::kTracedNorms, layer.name);
      squares.narrow(0, b, 1).copy_(row_squares(row.unsqueeze(0)));
    }
    add_squares(group.squares, weight_bound(layer), squares);
  } else if (const auto own = group.per_sample.find(layer.weight->index);
             own != group.per_sample.end()) {
    for (int64_t b = 0; b < samples; ++b) {
      at::Tensor row = own->second.rows[b];
      add(b, row);
    }
  } else {
    const auto type = layer.compute_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor rows = rows_of(layer, samples, type, add);
    // The second pass adds the uses one by one, each with its own rounding.
    if (needs_second_pass_) group.magnitude = row_squares(rows).sqrt();
    keep_rows(group, layer.weight, rows);
  }
  if (--group.pending == 0) complete(group);
}

// Another use of a weight whose rows are formed one after the other.
bool NormEngine::adds_to_samples(const Group& group, const ParamLayer& layer) const {
  return is_shared(layer) && layer.weight->trainable && !has_custom_norms() &&
         has_built_in_rule(layer) && !has_trained_bias(layer) &&
         std::any_of(group.layers.begin(), group.layers.end(), [&](const ParamLayer* other) {
           return other->by_samples && takes_samples(*other);
         });
}

void NormEngine::add_to_samples(Group& group, const ParamLayer& layer, const at::Tensor& a,
                                const at::Tensor& g) {
  const profile::Zone zone(kLocalNorms, profile::kTracedGradients, layer.name);
  if (needs_second_pass_) {
    const at::Tensor length = squared_norms(layer, a, g, {}).sqrt();
    group.magnitude = group.magnitude.defined() ? group.magnitude + length : length;
  }
  const auto own = group.per_sample.find(layer.weight->index);
  if (own == group.per_sample.end()) {
    keep_rows(group, layer.weight, per_sample_gradients(layer, a, g).weight);
  } else {
    add_to_rows(own->second.rows, layer, a, g);
  }
  if (--group.pending == 0) complete(group);
}

// The same numbers as in the first pass; now the factors are known. The one row of a sample is
// handed on as it is; others are added up, one after the other.
void NormEngine::sum_samples(const ParamLayer& layer, int64_t samples,
                             const models::AddSample& add) {
  models::Parameter& weight = *layer.weight;
  const at::Tensor& factors = factors_[bound_of_[weight.index]];
  for (int64_t b = 0; b < samples; ++b) {
    at::Tensor row;
    add(b, row);
    const at::Tensor rows = row.unsqueeze(0), factor = factors.narrow(0, b, 1);
    if (samples == 1 && !is_shared(layer)) {
      add_rows(weight, rows, factor);
    } else {
      weight.grad = kernels::add_weighted_rows(weight.grad, rows, factor);
      profile::claim(weight.grad, Owner::Gradients);
    }
  }
  announce(layer);
}

}  // namespace moonshard::privacy
