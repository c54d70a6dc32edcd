// Rotary positions (Su et al., "RoFormer", 2021) of queries and keys, in place: dimension i of a
// head turns with dimension i + d / 2 (Hugging Face's half-split layout):
//   first' = first cos - second sin,   second' = second cos + first sin.
//
// q [B, T, Hq d], k [B, T, Hkv d]: the projections' own layout, contiguous, one dtype. Tables
// [T, d / 2], float32 or wider; the caller rounds their values to the compute dtype if desired.
// Arithmetic in float32 or wider, one rounding of the result. On a GPU float32 and bfloat16 take
// one launch for both; the rest takes the reference. Both agree within one ulp.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// Whether the kernel runs for tensors such as this one.
bool rotary_kernel_runs(const at::Tensor& q);

/// Rotates q and k by their positions; `inverse` rotates back, which is the backward pass.
void rotate_in_place(at::Tensor& q, at::Tensor& k, const at::Tensor& cosines,
                     const at::Tensor& sines, bool inverse);
void rotate_in_place_ref(at::Tensor& q, at::Tensor& k, const at::Tensor& cosines,
                         const at::Tensor& sines, bool inverse);

}  // namespace moonshard::kernels
