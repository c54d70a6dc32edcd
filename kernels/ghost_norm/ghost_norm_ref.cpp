#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/ghost_norm/ghost_norm.h"
#include "kernels/ghost_norm/ghost_norm_check.h"

namespace moonshard::kernels {
namespace {

// x x^T [B, T, T] in float32, or double for double: on a GPU by the multiplying unit's own
// accumulator, elsewhere by widening first.
at::Tensor gram(const at::Tensor& x_BTd) {
  if (x_BTd.scalar_type() == at::kDouble || x_BTd.scalar_type() == at::kFloat)
    return at::bmm(x_BTd, x_BTd.transpose(1, 2));
  if (x_BTd.is_cuda()) return at::bmm(x_BTd, x_BTd.transpose(1, 2), at::kFloat);
  const at::Tensor wide = x_BTd.to(at::kFloat);
  return at::bmm(wide, wide.transpose(1, 2));
}

// Samples per pass: bounds the memory of the Gram matrices.
int64_t samples_at_a_time(const at::Tensor& a_BTi) {
  constexpr int64_t kRoom = int64_t{1} << 28;  // bytes, on each of three matrices
  const int64_t per_sample = std::max<int64_t>(1, a_BTi.size(1) * a_BTi.size(1) * 4);
  return std::max<int64_t>(1, kRoom / per_sample);
}

}  // namespace

GhostSums ghost_norm_ref(const std::vector<GhostGroup>& groups) {
  check_ghost_groups(groups);
  const at::Tensor& first = groups.front().a;
  const int64_t B = first.size(0);
  int64_t layers = 0;
  for (const GhostGroup& group : groups) layers += static_cast<int64_t>(group.g.size());
  GhostSums sums{at::zeros({layers, B}, first.options().dtype(at::kDouble)),
                 at::zeros({layers, B}, first.options().dtype(at::kDouble))};
  int64_t row = 0;
  for (const GhostGroup& group : groups) {
    const int64_t step = samples_at_a_time(group.a);
    for (int64_t b = 0; b < B; b += step) {
      const int64_t count = std::min(step, B - b);
      const at::Tensor a_gram = gram(group.a.narrow(0, b, count));
      for (size_t k = 0; k < group.g.size(); ++k) {
        at::Tensor product = gram(group.g[k].narrow(0, b, count)).mul_(a_gram).flatten(1);
        const int64_t layer = row + static_cast<int64_t>(k);
        sums.value[layer].narrow(0, b, count).copy_(product.sum(1, false, at::kDouble));
        sums.magnitude[layer].narrow(0, b, count).copy_(product.abs_().sum(1, false, at::kDouble));
      }
    }
    row += static_cast<int64_t>(group.g.size());
  }
  return sums;
}

}  // namespace moonshard::kernels
