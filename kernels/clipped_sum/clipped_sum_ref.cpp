#include <ATen/ATen.h>

#include "kernels/clipped_sum/clipped_sum.h"

namespace moonshard::kernels {

void clipped_sum_ref(const SampleProblem& problem, const at::Tensor& factors, at::Tensor& out,
                     bool accumulate) {
  const at::ScalarType wide = out.scalar_type();
  if (!accumulate) out.zero_();
  const at::Tensor dropped = factors == 0;
  if (problem.a.size(1) == 1) {  // samples as positions: one product, in the result's own type
    const at::Tensor column = factors.to(wide).unsqueeze(1), out_of = dropped.unsqueeze(1);
    const at::Tensor g = problem.g.select(1, 0).to(wide).mul(column).masked_fill_(out_of, 0);
    const at::Tensor a = problem.a.select(1, 0).to(wide).masked_fill(out_of, 0);
    out.addmm_(g.t(), a);
    return;
  }
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
