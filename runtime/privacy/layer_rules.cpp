#include "runtime/privacy/layer_rules.h"

#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "kernels/fused_update/fused_update.h"
#include "runtime/base/check.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/profile/ledger.h"

namespace moonshard::privacy {
namespace {

namespace kinds = models::kinds;
using models::ParamLayer;

// Backward passes on several devices look rules up from several threads.
struct Registry {
  std::mutex mutex;
  const std::map<std::string, std::shared_ptr<const LayerRule>> built_in = {
      {kinds::kLinear, make_linear_rule()},       {kinds::kPatchEmbedding, make_linear_rule()},
      {kinds::kEmbedding, make_embedding_rule()}, {kinds::kPositionTable, make_table_rule()},
      {kinds::kRmsNorm, make_scale_rule()},       {kinds::kLayerNorm, make_scale_rule()}};
  std::map<std::string, std::shared_ptr<const LayerRule>> rules = built_in;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

std::shared_ptr<const LayerRule> rule_of(const ParamLayer& layer) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.rules.find(layer.kind);
    if (found != all.rules.end()) return found->second;
  }
  throw UsageError(fmt::format(
      "privacy: layer '{}' has no norm rule (kind {}); register one (register_rule in C++, "
      "ms.register_rule in Lua) or freeze the layer; kinds with a rule: {}",
      layer.name, layer.kind, fmt::join(ruled_kinds(), ", ")));
}

at::Tensor per_sample_bias(const at::Tensor& g) {
  return as_positions(g).sum(1, /*keepdim=*/false, wide_type(g));
}

// Rules may come from outside: a wrong shape is found here, not three steps later.
at::Tensor checked(const at::Tensor& result, const ParamLayer& layer, at::IntArrayRef want,
                   const char* what) {
  MS_CHECK(result.defined() && result.sizes() == want,
           "privacy: rule of kind {}, layer '{}': expected {} of shape {}, got {}", layer.kind,
           layer.name, what, c10::str(want),
           result.defined() ? c10::str(result.sizes()) : std::string("nothing"));
  return result;
}

// <G^T A, rows of g2 by ids> = sum over (t, s) of G[t, id_s] (a_t . g2_s), for all samples at once,
// as many positions t at a time as fit into a room that is small beside G. G is read where ids
// point, never copied.
at::Tensor cross_of_all_samples(const at::Tensor& a_BTd, const at::Tensor& g_BTV,
                                const at::Tensor& ids_BS, const at::Tensor& e_BSd) {
  constexpr int64_t kRoom = int64_t{1} << 28;  // bytes: picked, products, and both multiplied
  const int64_t B = a_BTd.size(0), T = a_BTd.size(1), S = ids_BS.size(1);
  const int64_t tile = std::clamp<int64_t>(kRoom / std::max<int64_t>(B * S * 10, 1), 1, T);
  at::Tensor total;
  for (int64_t t = 0; t < T; t += tile) {
    const int64_t rows = std::min(tile, T - t);
    const at::Tensor picked_BTS =
        g_BTV.narrow(1, t, rows).gather(2, ids_BS.unsqueeze(1).expand({B, rows, S}));
    at::Tensor dots_BTS = wide_bmm(a_BTd.narrow(1, t, rows), e_BSd.transpose(1, 2));
    const at::Tensor part = dots_BTS.mul_(picked_BTS).sum({1, 2}, false, at::kDouble);
    total = total.defined() ? total + part : part;
  }
  return total;
}

// The same, one sample at a time: a CPU has no use for more.
at::Tensor linear_embedding_cross(const ParamLayer& embedding, const at::Tensor& a,
                                  const at::Tensor& g, const at::Tensor& ids,
                                  const at::Tensor& other_g) {
  constexpr int64_t kTile = 256;
  const at::Tensor a_BTd = as_positions(a), g_BTV = as_positions(g);
  const int64_t B = a_BTd.size(0), T = a_BTd.size(1);
  const at::Tensor ids_BS = ids.reshape({B, -1});
  at::Tensor e_BSd = other_g.reshape({B, ids_BS.size(1), -1});
  if (embedding.padding_id >= 0) {
    e_BSd = e_BSd.masked_fill(ids_BS.eq(embedding.padding_id).unsqueeze(2), 0);
  }
  if (g.is_cuda() || stands_in(g)) return cross_of_all_samples(a_BTd, g_BTV, ids_BS, e_BSd);
  at::Tensor total = at::zeros({B}, a.options().dtype(at::kDouble));
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; t += kTile) {
      const int64_t rows = std::min(kTile, T - t);
      const at::Tensor picked =
          at_least_float(g_BTV[b].narrow(0, t, rows).index_select(1, ids_BS[b]));
      const at::Tensor dots = wide_mm(a_BTd[b].narrow(0, t, rows), e_BSd[b].t());
      total[b].add_((picked * dots).sum(at::kDouble));
    }
  }
  return total;
}

// Float32 sums of a long row lose digits: short pieces are summed in float32, their sums in double.
constexpr int64_t kPiece = 512;

at::Tensor pieces_squares(const at::Tensor& flat_nk) {
  const int64_t n = flat_nk.size(0), whole = flat_nk.size(1) / kPiece * kPiece;
  at::Tensor total = at::zeros({n}, flat_nk.options().dtype(at::kDouble));
  const auto add = [&](const at::Tensor& pieces) {
    total.add_(
        at::linalg_vector_norm(pieces, 2, at::IntArrayRef{2}).to(at::kDouble).square().sum(1));
  };
  if (whole > 0) add(flat_nk.narrow(1, 0, whole).unflatten(1, {whole / kPiece, kPiece}));
  if (whole < flat_nk.size(1)) {
    add(flat_nk.narrow(1, whole, flat_nk.size(1) - whole).unsqueeze(1));
  }
  return total;
}

}  // namespace

// Whole rows may be a model's gradients for every sample, of which the wide copy would be twice as
// large: a CPU makes a slice wide at a time. A GPU is better off with few large operations.
at::Tensor wide_row_squares(const at::Tensor& x) {
  constexpr int64_t kSlice = 1 << 16;
  const at::Tensor flat_nk = x.flatten(1);
  if (!x.is_cpu()) return pieces_squares(flat_nk.to(at::kDouble));
  const int64_t n = flat_nk.size(0), k = flat_nk.size(1);
  const int64_t rows = std::max<int64_t>(1, kSlice / std::max<int64_t>(k, 1));
  at::Tensor total = at::zeros({n}, flat_nk.options().dtype(at::kDouble));
  for (int64_t row = 0; row < n; row += rows) {
    const at::Tensor some = flat_nk.narrow(0, row, std::min(rows, n - row));
    for (int64_t column = 0; column < k; column += kSlice) {
      const at::Tensor slice = some.narrow(1, column, std::min(kSlice, k - column));
      total.narrow(0, row, some.size(0)).add_(slice.to(at::kDouble).square().sum(1));
    }
  }
  return total;
}

at::Tensor row_squares(const at::Tensor& x) {
  const at::Tensor flat = x.flatten(1);
  const at::Tensor squares = pieces_squares(flat);
  if (x.is_cpu() && x.scalar_type() != at::kDouble &&
      (squares < 1e-30).logical_or(squares > 1e36).any().item<bool>())
    return wide_row_squares(flat);
  return squares;
}

at::Tensor LayerRule::squares(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                              const NormSettings&) const {
  return row_squares(per_sample(layer, a, g));
}

void LayerRule::add_sum(at::Tensor& sum, const ParamLayer& layer, const at::Tensor& a,
                        const at::Tensor& g, const at::Tensor& factors) const {
  at::Tensor rows = per_sample(layer, a, g);
  if (factors.defined()) rows = scaled_rows(rows, factors);
  const at::Tensor part = rows.sum(0);
  sum = sum.defined() ? sum.add_(part) : part;
}

void register_rule(const std::string& kind, std::shared_ptr<const LayerRule> rule) {
  MS_CHECK(!kind.empty(), "privacy.register_rule: expected a kind's name, got an empty one");
  const std::lock_guard lock(registry().mutex);
  if (rule == nullptr) {
    registry().rules.erase(kind);
  } else {
    registry().rules[kind] = std::move(rule);
  }
}

std::vector<std::string> ruled_kinds() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [kind, rule] : registry().rules) names.push_back(kind);
  return names;
}

void require_rule(const ParamLayer& layer) {
  rule_of(layer);
}

bool has_built_in_rule(const ParamLayer& layer) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto own = all.built_in.find(layer.kind);
  const auto active = all.rules.find(layer.kind);
  return own != all.built_in.end() && active != all.rules.end() && own->second == active->second;
}

LayerGradients per_sample_gradients(const ParamLayer& layer, const at::Tensor& a,
                                    const at::Tensor& g) {
  LayerGradients result;
  if (layer.weight->trainable) {
    std::vector<int64_t> want{g.size(0)};
    for (const int64_t size : layer.weight->value.sizes()) want.push_back(size);
    result.weight =
        checked(rule_of(layer)->per_sample(layer, a, g), layer, want, "per-sample gradients");
  }
  if (has_trained_bias(layer)) result.bias = per_sample_bias(g);
  return result;
}

at::Tensor squared_norms(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                         const NormSettings& settings) {
  at::Tensor total;
  if (layer.weight->trainable) {
    total =
        checked(rule_of(layer)->squares(layer, a, g, settings), layer, {g.size(0)}, "squared norms")
            .to(at::kDouble);
  }
  if (has_trained_bias(layer) && settings.counts_bias) {
    const at::Tensor bias = row_squares(per_sample_bias(g));
    total = total.defined() ? total + bias : bias;
  }
  return total.defined() ? total : at::zeros({g.size(0)}, g.options().dtype(at::kDouble));
}

at::Tensor bias_squares(const at::Tensor& g) {
  return row_squares(per_sample_bias(g));
}

void add_gradients(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                   const at::Tensor& factors, const at::Tensor& bias_factors) {
  if (layer.weight->trainable) {
    rule_of(layer)->add_sum(layer.weight->grad, layer, a, g, factors);
    profile::claim(layer.weight->grad, profile::Owner::Gradients);
  }
  if (!has_trained_bias(layer)) return;
  at::Tensor& sum = layer.bias->grad;
  const at::Tensor part =
      bias_factors.defined()
          ? scaled_rows(per_sample_bias(g), bias_factors).sum(0)
          : as_positions(g).sum(at::IntArrayRef{0, 1}, /*keepdim=*/false, wide_type(g));
  sum = sum.defined() ? sum.add_(part) : part;
  profile::claim(sum, profile::Owner::Gradients);
}

void add_rows(models::Parameter& parameter, const at::Tensor& rows, const at::Tensor& factors) {
  if (!factors.defined()) {
    const at::Tensor sum = rows.sum(0);
    parameter.grad = parameter.grad.defined() ? parameter.grad.add_(sum) : sum;
  } else if ((rows.is_cuda() || stands_in(rows)) && rows.scalar_type() != at::kDouble &&
             !parameter.rows.defined()) {
    parameter.rows = rows;
    parameter.row_factors = factors.to(at::kFloat);
    return;
  } else if (factors.dim() == 2) {
    parameter.grad =
        kernels::add_weighted_rows(parameter.grad, rows, factors).view(rows.sizes().slice(1));
  } else {
    const at::Tensor flat_Bn = at_least_float(rows.flatten(1));
    const at::Tensor sum =
        at::matmul(factors.to(flat_Bn.scalar_type()), without_dropped(flat_Bn, factors))
            .view(rows.sizes().slice(1));
    parameter.grad = parameter.grad.defined() ? parameter.grad.add_(sum) : sum;
  }
  profile::claim(parameter.grad, profile::Owner::Gradients);
}

void add_to_rows(at::Tensor& rows, const ParamLayer& layer, const at::Tensor& a,
                 const at::Tensor& g) {
  for (int64_t b = 0; b < rows.size(0); ++b) {
    at::Tensor row = rows[b];
    rule_of(layer)->add_sum(row, layer, a.narrow(0, b, 1), g.narrow(0, b, 1), {});
  }
}

void announce_gradients(const ParamLayer& layer) {
  if (layer.seam->keeper != nullptr) layer.seam->keeper->gradients_added(layer);
}

at::Tensor cross_products(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                          const ParamLayer& other, const at::Tensor& other_a,
                          const at::Tensor& other_g) {
  if (is_matrix(layer) && other.kind == kinds::kEmbedding)
    return linear_embedding_cross(other, a, g, other_a, other_g);
  if (layer.kind == kinds::kEmbedding && is_matrix(other))
    return linear_embedding_cross(layer, other_a, other_g, a, g);
  const at::Tensor one = rule_of(layer)->per_sample(layer, a, g).flatten(1);
  const at::Tensor two = rule_of(other)->per_sample(other, other_a, other_g).flatten(1);
  return (one * two).sum(1, false, at::kDouble);
}

}  // namespace moonshard::privacy
