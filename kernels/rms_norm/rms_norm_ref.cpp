#include <ATen/ATen.h>

#include "kernels/common/fused_tensors.h"
#include "kernels/rms_norm/rms_norm.h"

namespace moonshard::kernels {
AddedNorm add_rms_norm_ref(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                           double eps) {
  const at::Tensor y = delta.defined() ? x + delta : x;
  const auto type = y.scalar_type(), wide = wide_type(y);
  const at::Tensor wide_y = y.to(wide);
  const at::Tensor inverse_spread = at::rsqrt(wide_y.square().mean(-1, true) + eps);
  const at::Tensor normalised = (wide_y * inverse_spread).to(type).to(wide);
  return {y, (normalised * rounded_parameter(weight, y)).to(type), inverse_spread};
}

RmsNormGradients rms_norm_backward_ref(const at::Tensor& dn, const at::Tensor& dy,
                                       const at::Tensor& y, const at::Tensor& inverse_spread,
                                       const at::Tensor& weight, const RmsNormWants& wants) {
  const auto type = y.scalar_type(), wide = wide_type(y);
  const at::Tensor direction = y.to(wide) * inverse_spread, wide_dn = dn.to(wide);
  RmsNormGradients gradients;
  if (wants.input) {
    const at::Tensor scaled = wide_dn * rounded_parameter(weight, y);
    at::Tensor sum = inverse_spread * (scaled - direction * (scaled * direction).mean(-1, true));
    if (dy.defined()) sum = sum + dy.to(wide);
    gradients.input = sum.to(type);
  }
  const at::Tensor normalised = direction.to(type);
  if (wants.weight_rows) {
    gradients.weight_rows =
        (wide_dn * normalised.to(wide)).reshape({y.size(0), -1, y.size(-1)}).sum(1);
  }
  if (wants.normalised) gradients.normalised = normalised;
  return gradients;
}

}  // namespace moonshard::kernels
