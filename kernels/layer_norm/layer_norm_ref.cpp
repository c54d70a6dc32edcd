#include <ATen/ATen.h>

#include "kernels/common/fused_tensors.h"
#include "kernels/layer_norm/layer_norm.h"

namespace moonshard::kernels {
namespace {

// [B, d] -> [B, 1, ..., d], to go with x.
at::Tensor over_positions(const at::Tensor& rows, const at::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape.front() = rows.size(0);
  shape.back() = rows.size(1);
  return rows.to(wide_type(x)).reshape(shape);
}

at::Tensor sum_of_positions(const at::Tensor& x) {
  return x.reshape({x.size(0), -1, x.size(-1)}).sum(1);
}

}  // namespace

SurroundedNorm layer_norm_forward_ref(const at::Tensor& x, const NormSurroundings& around,
                                      double eps) {
  const auto type = x.scalar_type(), wide = wide_type(x);
  at::Tensor y = x;
  if (around.branch.defined())
    y = (x.to(wide) + over_positions(around.gate, x) * around.branch.to(wide)).to(type);
  const at::Tensor wide_y = y.to(wide), mean = wide_y.mean(-1, true);
  const at::Tensor inverse_spread =
      at::rsqrt(wide_y.var(-1, /*unbiased=*/false, /*keepdim=*/true) + eps);
  at::Tensor n = ((wide_y - mean) * inverse_spread).to(type).to(wide);
  if (around.weight.defined())
    n = (n * rounded_parameter(around.weight, x) + rounded_parameter(around.bias, x))
            .to(type)
            .to(wide);
  if (around.scale.defined())
    n = n * (1 + over_positions(around.scale, x)) + over_positions(around.shift, x);
  return {y, n.to(type), mean, inverse_spread};
}

LayerNormGradients layer_norm_backward_ref(const at::Tensor& d_result, const at::Tensor& dy,
                                           const SurroundedNorm& forward,
                                           const NormSurroundings& around,
                                           const LayerNormWants& wants) {
  const at::Tensor& y = forward.y;
  const auto type = y.scalar_type(), wide = wide_type(y);
  const at::Tensor h = (y.to(wide) - forward.mean) * forward.inverse_spread;
  const at::Tensor normalised = h.to(type), out = d_result.to(wide);
  LayerNormGradients gradients;
  at::Tensor n = normalised.to(wide), dn = out;
  if (around.weight.defined())
    n = n * rounded_parameter(around.weight, y) + rounded_parameter(around.bias, y);
  if (around.scale.defined()) {
    gradients.scale = sum_of_positions(out * n).to(type);
    gradients.shift = sum_of_positions(out).to(type);
    dn = out * (1 + over_positions(around.scale, y));
  }
  if (wants.parameter_rows) {
    gradients.weight_rows = sum_of_positions(dn * normalised.to(wide));
    gradients.bias_rows = sum_of_positions(dn);
  }
  if (wants.normalised) {
    gradients.normalised = normalised;
    gradients.n = dn.to(type);
  }
  const at::Tensor dh = around.weight.defined() ? dn * rounded_parameter(around.weight, y) : dn;
  at::Tensor total =
      forward.inverse_spread * (dh - dh.mean(-1, true) - h * (dh * h).mean(-1, true));
  if (dy.defined()) total = total + dy.to(wide);
  gradients.x = total.to(type);
  if (around.branch.defined()) {
    gradients.branch = (total * over_positions(around.gate, y)).to(type);
    gradients.gate = sum_of_positions(total * around.branch.to(wide)).to(type);
  }
  return gradients;
}

}  // namespace moonshard::kernels
