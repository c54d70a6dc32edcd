#include <ATen/ATen.h>

#include "kernels/flash_norm/flash_norm.h"

namespace moonshard::kernels {

at::Tensor flash_norm_ref(const SampleProblem& problem, const at::Tensor& kept,
                          const at::Tensor& scale) {
  const at::ScalarType wide = problem.a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t samples = problem.a.size(0);
  at::Tensor squares = at::zeros({samples}, problem.a.options().dtype(at::kDouble));
  for (int64_t b = 0; b < samples; ++b) {  // one gradient at a time in memory
    const at::Tensor gradient = problem.g[b].t().to(wide).mm(problem.a[b].to(wide));
    if (!kept.defined()) {
      squares[b].copy_(gradient.square().sum(at::kDouble));
      continue;
    }
    constexpr double kMostHalf = 65504;
    const at::Tensor scaled = gradient * scale[b];
    kept[b].copy_(at::where(gradient.isfinite(), scaled.clamp(-kMostHalf, kMostHalf), scaled));
    squares[b].copy_(kept[b].to(at::kDouble).div(scale[b]).square().sum());
  }
  return squares;
}

}  // namespace moonshard::kernels
