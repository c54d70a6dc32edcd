// Layer norm fused with its neighbours in a diffusion transformer: a gated residual addition
// before, an affine form, and an adaptive modulation after (adaLN, Peebles and Xie, 2023). All of
// these are optional:
//   y = x + gate * branch,   h = (y - mean) / sqrt(var + eps),   n = h * weight + bias,
//   result = n * (1 + scale) + shift.
//
// x, branch [B, ..., d]; gate, scale, shift [B, d], one row for all positions of a sample, rows may
// be strided; all of one dtype. weight, bias [d] in that dtype or wider. Statistics in float32 or
// wider. Rounding to the dtype: y, then h, weight and bias, then n, then the result. On a GPU
// float32 and bfloat16 take one pass forward and one backward (d up to 4096); float64, half, wider
// rows and the CPU take the reference. The result agrees with it within three ulps, gradients
// within one, sums over positions within 1e-5 of their size.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// Whether the kernels run for tensors such as this one.
bool layer_norm_kernel_runs(const at::Tensor& x);

/// The fused neighbours; undefined: left out. branch and gate go together, so do weight and bias,
/// so do scale and shift.
struct NormSurroundings {
  at::Tensor branch, gate;
  at::Tensor weight, bias;
  at::Tensor scale, shift;
};

struct SurroundedNorm {
  at::Tensor y;                     ///< x itself without a branch
  at::Tensor result;                ///< like y
  at::Tensor mean, inverse_spread;  ///< [B, ..., 1], float32 or wider
};

SurroundedNorm layer_norm_forward(const at::Tensor& x, const NormSurroundings& around, double eps);
SurroundedNorm layer_norm_forward_ref(const at::Tensor& x, const NormSurroundings& around,
                                      double eps);

/// Optional outputs for the weight's gradient; the gradients of inputs are always computed.
struct LayerNormWants {
  bool parameter_rows = false;  ///< each sample's gradient of weight and bias
  bool normalised = false;      ///< h as forward rounded it, and the gradient of n
};

struct LayerNormGradients {
  at::Tensor x;                       ///< like y
  at::Tensor branch;                  ///< like y
  at::Tensor gate, scale, shift;      ///< [B, d] in the dtype
  at::Tensor weight_rows, bias_rows;  ///< [B, d], float32 or wider; summed in a fixed order
  at::Tensor normalised, n;           ///< like y
};

/// d_result: gradient of the result; dy: gradient that reaches y on other paths, may be undefined.
/// With `overwrite` the gradient of the branch is written into d_result's memory, which must not be
/// shared.
LayerNormGradients layer_norm_backward(const at::Tensor& d_result, const at::Tensor& dy,
                                       const SurroundedNorm& forward,
                                       const NormSurroundings& around, const LayerNormWants& wants,
                                       bool overwrite = false);
LayerNormGradients layer_norm_backward_ref(const at::Tensor& d_result, const at::Tensor& dy,
                                           const SurroundedNorm& forward,
                                           const NormSurroundings& around,
                                           const LayerNormWants& wants);

}  // namespace moonshard::kernels
