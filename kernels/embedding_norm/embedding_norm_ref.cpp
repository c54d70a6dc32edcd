#include <ATen/ATen.h>

#include "kernels/embedding_norm/embedding_norm.h"

namespace moonshard::kernels {
namespace {

at::Tensor wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

at::Tensor without_padding(const at::Tensor& ids_BT, const at::Tensor& g_BTd, int64_t padding_id) {
  if (padding_id < 0) return wide(g_BTd);
  return wide(g_BTd).masked_fill(ids_BT.eq(padding_id).unsqueeze(2), 0);
}

}  // namespace

// Each sample's ids are sorted; runs of equal ids are numbered and their positions' rows of g added
// up in the run's row of a table with one row per position.
at::Tensor embedding_norm_ref(const at::Tensor& ids, const at::Tensor& g, int64_t padding_id) {
  const int64_t B = g.size(0), T = g.size(1), d = g.size(2);
  if (g.numel() == 0) return at::zeros({B}, g.options().dtype(at::kDouble));
  const at::Tensor g_BTd = without_padding(ids, g, padding_id);
  const auto [key_BT, order_BT] = ids.sort(/*stable=*/true, /*dim=*/1, /*descending=*/false);
  at::Tensor run_BT = at::zeros_like(key_BT);
  if (T > 1) {
    run_BT.narrow(1, 1, T - 1)
        .copy_(at::cumsum(key_BT.narrow(1, 1, T - 1).ne(key_BT.narrow(1, 0, T - 1)), 1));
  }
  const at::Tensor first_B1 = at::arange(B, ids.options()).unsqueeze(1) * T;
  at::Tensor rows = at::zeros({B * T, d}, g_BTd.options());
  rows.index_add_(0, (run_BT + first_B1).flatten(),
                  g_BTd.reshape({B * T, d}).index_select(0, (order_BT + first_B1).flatten()));
  return at::linalg_vector_norm(rows.view({B, T * d}), 2, at::IntArrayRef{1}, false, at::kDouble)
      .square();
}

void embedding_sum_ref(at::Tensor& out, const at::Tensor& ids, const at::Tensor& g,
                       const at::Tensor& factors, int64_t padding_id) {
  if (g.numel() == 0) return;
  at::Tensor g_BTd = without_padding(ids, g, padding_id);
  if (factors.defined()) {
    const at::Tensor factor_B11 = factors.to(g_BTd.scalar_type()).view({-1, 1, 1});
    g_BTd = at::where(factor_B11.eq(0), at::zeros({}, g_BTd.options()), g_BTd * factor_B11);
  }
  out.index_add_(0, ids.flatten(), g_BTd.flatten(0, 1).to(out.scalar_type()));
}

}  // namespace moonshard::kernels
