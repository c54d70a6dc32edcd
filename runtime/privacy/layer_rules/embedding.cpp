// Embedding: the gradient of sample b has, in the row of each id, the sum of g over the positions
// that hold this id. Repeated ids add up before the norm is taken; the padding id's row has none.
#include "kernels/common/choice.h"
#include "kernels/embedding_norm/embedding_norm.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/layer_rules/rules.h"

namespace moonshard::privacy {
namespace {

// g with the padding positions' rows at zero, [B, T, d], wide.
at::Tensor without_padding(const models::ParamLayer& layer, const at::Tensor& ids_BT,
                           const at::Tensor& g) {
  const at::Tensor g_BTd = at_least_float(as_positions(g));
  if (layer.padding_id < 0) return g_BTd;
  return g_BTd.masked_fill(ids_BT.eq(layer.padding_id).unsqueeze(2), 0);
}

bool by_kernel(const at::Tensor& g) {
  return stands_in(g) ||
         (g.scalar_type() != at::kDouble && kernels::kernel_runs("embedding_norm", g));
}

class EmbeddingRule : public LayerRule {
 public:
  at::Tensor per_sample(const models::ParamLayer& layer, const at::Tensor& ids,
                        const at::Tensor& g) const override {
    const int64_t B = ids.size(0), V = layer.weight->value.size(0), d = g.size(-1);
    const at::Tensor ids_BT = ids.reshape({B, -1});
    const at::Tensor g_BTd = without_padding(layer, ids_BT, as_rows(g, ids_BT));
    // Each sample has its own V rows in one tall table.
    const at::Tensor offset_B1 = at::arange(B, ids.options()).unsqueeze(1) * V;
    at::Tensor table = at::zeros({B * V, d}, g_BTd.options());
    table.index_add_(0, (ids_BT + offset_B1).flatten(), g_BTd.reshape({-1, d}));
    return table.view({B, V, d});
  }

  // Equal (sample, id) pairs are brought together by sorting; each run of equal pairs is one row of
  // the gradient. The table has a row per position, however many ids there are.
  at::Tensor squares(const models::ParamLayer& layer, const at::Tensor& ids, const at::Tensor& g,
                     const NormSettings&) const override {
    const int64_t B = ids.size(0), V = layer.weight->value.size(0), d = g.size(-1);
    const at::Tensor ids_BT = ids.reshape({B, -1});
    const at::Tensor g_Nd = without_padding(layer, ids_BT, as_rows(g, ids_BT)).reshape({-1, d});
    const at::Tensor lengths_BT =
        at::linalg_vector_norm(g_Nd, 2, at::IntArrayRef{1}).to(at::kDouble).view_as(ids_BT);
    if (by_kernel(g)) {
      return with_rounding_of_sum(
          kernels::embedding_norm(ids_BT, as_rows(g, ids_BT), layer.padding_id), lengths_BT.sum(1),
          wide_type(g_Nd));
    }
    const at::Tensor sample_B1 = at::arange(B, ids.options()).unsqueeze(1);
    const auto [key_N, order_N] = (ids_BT + sample_B1 * V).flatten().sort();
    at::Tensor run_N = at::zeros_like(key_N);
    if (key_N.numel() > 1) {
      run_N.narrow(0, 1, key_N.numel() - 1)
          .copy_(at::cumsum(
              key_N.narrow(0, 1, key_N.numel() - 1).ne(key_N.narrow(0, 0, key_N.numel() - 1)), 0));
    }
    at::Tensor rows = at::zeros_like(g_Nd);
    rows.index_add_(0, run_N, g_Nd.index_select(0, order_N));
    // Every position adds its own share of its row's square: the row's total over its run.
    const at::Tensor square_of_run = row_squares(rows);
    at::Tensor first_of_run = at::ones_like(run_N, at::kBool);
    if (key_N.numel() > 1) {
      first_of_run.narrow(0, 1, key_N.numel() - 1)
          .copy_(run_N.narrow(0, 1, key_N.numel() - 1).ne(run_N.narrow(0, 0, key_N.numel() - 1)));
    }
    const at::Tensor part_N = square_of_run.index_select(0, run_N) * first_of_run;
    at::Tensor total = at::zeros({B}, part_N.options());
    total.index_add_(0, at::floor_divide(key_N, V), part_N);
    return with_rounding_of_sum(total, lengths_BT.sum(1), wide_type(g_Nd));
  }

  void add_sum(at::Tensor& sum, const models::ParamLayer& layer, const at::Tensor& ids,
               const at::Tensor& g, const at::Tensor& factors) const override {
    const at::Tensor ids_BT = ids.reshape({ids.size(0), -1});
    if (by_kernel(g)) {
      if (!sum.defined())
        sum = at::zeros(layer.weight->value.sizes(), g.options().dtype(at::kFloat));
      if (sum.scalar_type() == at::kFloat) {
        return kernels::embedding_sum(sum, ids_BT, as_rows(g, ids_BT), factors, layer.padding_id);
      }
    }
    at::Tensor g_BTd = without_padding(layer, ids_BT, as_rows(g, ids_BT));
    if (factors.defined()) g_BTd = scaled_rows(g_BTd, factors);
    if (!sum.defined()) sum = at::zeros(layer.weight->value.sizes(), g_BTd.options());
    sum.index_add_(0, ids_BT.flatten(), g_BTd.flatten(0, 1).to(sum.scalar_type()));
  }

 private:
  // One id per sample (a class label) has g [B, d]: one position.
  static at::Tensor as_rows(const at::Tensor& g, const at::Tensor& ids_BT) {
    return g.reshape({ids_BT.size(0), ids_BT.size(1), g.size(-1)});
  }
};

}  // namespace

std::shared_ptr<const LayerRule> make_embedding_rule() {
  return std::make_shared<EmbeddingRule>();
}

}  // namespace moonshard::privacy
