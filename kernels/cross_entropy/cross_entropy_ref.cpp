#include <ATen/ATen.h>

#include "kernels/cross_entropy/cross_entropy.h"

namespace moonshard::kernels {
namespace {

at::Tensor widened(const at::Tensor& x) {
  return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace

RowLosses cross_entropy_forward_ref(const at::Tensor& scores, const at::Tensor& labels) {
  const at::Tensor wide = widened(scores), ignored = labels.eq(kIgnoredLabel);
  const at::Tensor log_sums = at::logsumexp(wide, -1);
  const at::Tensor chosen =
      wide.gather(-1, labels.masked_fill(ignored, 0).unsqueeze(-1)).squeeze(-1);
  return {(log_sums - chosen).masked_fill(ignored, 0), log_sums};
}

at::Tensor cross_entropy_backward_ref(const at::Tensor& scores, const at::Tensor& labels,
                                      const at::Tensor& log_sums, const at::Tensor& factors) {
  const at::Tensor wide = widened(scores), ignored = labels.eq(kIgnoredLabel);
  at::Tensor gradient = (wide - log_sums.unsqueeze(-1)).exp();
  const at::Tensor place = labels.masked_fill(ignored, 0).unsqueeze(-1);
  gradient.scatter_add_(-1, place, at::full_like(place, -1, gradient.options()));
  gradient = gradient * factors.unsqueeze(-1);
  return gradient.masked_fill(ignored.unsqueeze(-1), 0).to(scores.scalar_type());
}

}  // namespace moonshard::kernels
