#include <ATen/ATen.h>

#include "kernels/cross_entropy/cross_entropy.h"

namespace moonshard::kernels {
namespace {

// In float32 or wider, capped.
at::Tensor widened(const at::Tensor& x, double cap) {
  const at::Tensor wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return cap > 0 ? at::tanh(wide / cap) * cap : wide;
}

}  // namespace

RowLosses cross_entropy_forward_ref(const at::Tensor& scores, const at::Tensor& labels,
                                    double cap) {
  const at::Tensor wide = widened(scores, cap), ignored = labels.eq(kIgnoredLabel);
  const at::Tensor log_sums = at::logsumexp(wide, -1);
  const at::Tensor chosen =
      wide.gather(-1, labels.masked_fill(ignored, 0).unsqueeze(-1)).squeeze(-1);
  return {(log_sums - chosen).masked_fill(ignored, 0), log_sums};
}

at::Tensor cross_entropy_backward_ref(const at::Tensor& scores, const at::Tensor& labels,
                                      const at::Tensor& log_sums, const at::Tensor& factors,
                                      double cap) {
  const at::Tensor wide = widened(scores, cap), ignored = labels.eq(kIgnoredLabel);
  at::Tensor gradient = (wide - log_sums.unsqueeze(-1)).exp();
  const at::Tensor place = labels.masked_fill(ignored, 0).unsqueeze(-1);
  gradient.scatter_add_(-1, place, at::full_like(place, -1, gradient.options()));
  gradient = gradient * factors.unsqueeze(-1);
  if (cap > 0) gradient = gradient * (1 - (wide / cap).square());
  return gradient.masked_fill(ignored.unsqueeze(-1), 0).to(scores.scalar_type());
}

}  // namespace moonshard::kernels
