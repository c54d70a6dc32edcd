#include <ATen/ATen.h>

#include "kernels/nucleus/nucleus.h"

namespace moonshard::kernels {

at::Tensor nucleus_border_ref(const at::Tensor& parts, double share) {
  const at::Tensor wanted =
      (parts.sum(-1, /*keepdim=*/true, at::kLong).to(at::kDouble) * share).ceil_().to(at::kLong);
  at::Tensor border = at::zeros_like(wanted, at::kInt);
  for (int bit = 30; bit >= 0; --bit) {
    const at::Tensor raised = border + (1 << bit);
    const at::Tensor sum = (parts * parts.ge(raised)).sum(-1, /*keepdim=*/true, at::kLong);
    border = at::where(sum >= wanted, raised, border);
  }
  return border;
}

}  // namespace moonshard::kernels
