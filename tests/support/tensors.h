// Comparisons of tensors.
#pragma once

#include <ATen/ATen.h>

namespace moonshard {

/// Norm of the difference over the norm of what is expected, in float64.
inline double relative_difference(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor wide = want.to(at::kDouble);
  return ((got.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

}  // namespace moonshard
