// RMSNorm (Zhang and Sennrich, 2019) with the residual addition before it:
//   y = x + delta,   n = y / sqrt(mean(y^2) + eps) * weight.
//
// x, delta [B, ..., d] of one dtype; weight [d], in that dtype or wider. Statistics in float32 or
// wider. Rounding to the dtype: y, then the normalised value, then the weight, then their product.
// On a GPU float32 and bfloat16 take one pass forward and one backward (d up to 8192); float64,
// half, wider rows and the CPU take the reference. n agrees with the reference within two ulps (the
// normalised value may round the other way), gradients within one, rows of the weight within 1e-5
// of their size.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// Whether the kernels run for tensors such as this one.
bool rms_norm_kernel_runs(const at::Tensor& x);

struct AddedNorm {
  at::Tensor y;               ///< x + delta; x itself without a delta
  at::Tensor n;               ///< like y
  at::Tensor inverse_spread;  ///< [B, ..., 1], float32 or wider
};

/// delta may be undefined.
AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                       double eps);
AddedNorm add_rms_norm_ref(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                           double eps);

/// Which results of the backward pass to compute.
struct RmsNormWants {
  bool input = true;         ///< the gradient of x and delta
  bool weight_rows = false;  ///< each sample's gradient of the weight
  bool normalised = false;   ///< the normalised value, as forward rounded it
};

struct RmsNormGradients {
  at::Tensor input;        ///< of x and of delta alike: dy + the norm's own; like y
  at::Tensor weight_rows;  ///< [B, d], float32 or wider; summed in a fixed order
  at::Tensor normalised;   ///< like y
};

/// dn: gradient of n; dy: gradient that reaches y on other paths, may be undefined.
RmsNormGradients rms_norm_backward(const at::Tensor& dn, const at::Tensor& dy, const at::Tensor& y,
                                   const at::Tensor& inverse_spread, const at::Tensor& weight,
                                   const RmsNormWants& wants);
RmsNormGradients rms_norm_backward_ref(const at::Tensor& dn, const at::Tensor& dy,
                                       const at::Tensor& y, const at::Tensor& inverse_spread,
                                       const at::Tensor& weight, const RmsNormWants& wants);

}  // namespace moonshard::kernels
