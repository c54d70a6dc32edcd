#include <ATen/ATen.h>

#include "kernels/flash_norm/flash_norm.h"

namespace moonshard::kernels {

at::Tensor flash_norm_ref(const SampleProblem& problem, const KeptGradient& kept) {
  const at::ScalarType wide = problem.a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t samples = problem.a.size(0);
  at::Tensor squares = at::zeros({samples}, problem.a.options().dtype(at::kDouble));
  for (int64_t b = 0; b < samples; ++b) {  // one gradient at a time in memory
    const at::Tensor gradient = problem.g[b].t().to(wide).mm(problem.a[b].to(wide));
    if (!kept.defined()) {
      squares[b].copy_(gradient.square().sum(at::kDouble));
      continue;
    }
    const at::Tensor parts = gradient.view({-1, kUnitElements});
    const at::Tensor largest = std::get<0>(parts.abs().max(1));
    // frexp's exponents are one larger than those of numbers from 1 to 2.
    const at::Tensor exponent =
        at::where(largest.gt(0), std::get<1>(at::frexp(largest)).sub(15), -100).clamp_min(-100);
    const at::Tensor field = at::where(largest.isfinite(), exponent + 127, 127);  // of a float32
    const at::Tensor unit = field.to(at::kInt).mul(1 << 23).view(at::kFloat).to(at::kDouble);
    kept.units[b].copy_(unit);
    kept.numbers[b].copy_((parts / unit.unsqueeze(1)).view(gradient.sizes()));
    const at::Tensor back = kept.numbers[b].to(at::kDouble).view(parts.sizes()) * unit.unsqueeze(1);
    squares[b].copy_(back.square().sum());
  }
  return squares;
}

}  // namespace moonshard::kernels
