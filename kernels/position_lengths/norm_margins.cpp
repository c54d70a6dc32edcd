#include "kernels/position_lengths/norm_margins.h"

#include <ATen/ATen.h>

namespace moonshard::kernels {

at::Tensor bounded_gram(const at::Tensor& value, const at::Tensor& magnitude, at::ScalarType wide) {
  constexpr double kDoubleGramError = 1e-14;
  const double error = wide == at::kDouble ? kDoubleGramError : kGramError;
  return at::where(magnitude > value * kTrustedCancellation, value.clamp_min(0) + magnitude * error,
                   value);
}

at::Tensor gram_underflow(const at::Tensor& spread, int64_t width) {
  return spread * (kLostProducts * static_cast<double>(width));
}

at::Tensor with_rounding_of_sum(const at::Tensor& squares, const at::Tensor& magnitudes,
                                at::ScalarType wide) {
  const at::Tensor norms = squares.clamp_min(0).sqrt();
  const at::Tensor errors = magnitudes * (wide == at::kDouble ? kDoubleRounding : kFloatRounding);
  return at::where(errors > norms * kNoticed, (norms + errors).square(), squares);
}

}  // namespace moonshard::kernels
