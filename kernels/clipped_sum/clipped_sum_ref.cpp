#include <ATen/ATen.h>

#include "kernels/clipped_sum/clipped_sum.h"

namespace moonshard::kernels {

void clipped_sum_ref(const SampleProblem& problem, const at::Tensor& factors, at::Tensor& out,
                     bool accumulate) {
  const at::ScalarType wide = out.scalar_type();
  if (!accumulate) out.zero_();
  const at::Tensor dropped = factors == 0;
  // A GPU multiplies 16-bit operands into float32, many times faster than widened ones.
  const bool as_they_are = problem.a.is_cuda() && wide == at::kFloat &&
                           problem.a.scalar_type() == at::kBFloat16 &&
                           problem.g.scalar_type() == at::kBFloat16;
  for (int64_t b = 0; b < problem.a.size(0); ++b) {
    // masked_fill, not a product: 0 times infinity is not 0.
    const at::Tensor a = problem.a[b].masked_fill(dropped[b], 0);
    const at::Tensor g = problem.g[b].masked_fill(dropped[b], 0);
    const at::Tensor product =
        as_they_are ? at::mm(g.t(), a, at::kFloat) : g.to(wide).t().mm(a.to(wide));
    out.addcmul_(product, factors[b].to(wide));
  }
}

}  // namespace moonshard::kernels
