// Noise, scale and optimizer in one pass over a list of parameter parts. For element j of a part:
//   g = grad[j] + sum over b of factor(b, j) x rows[b][j]
//                                     factor: row_factors[b], or row_factors[b][(first_element + j)
//                                        / 128] where these are two-dimensional
//   g = (g + std z) / denominator     z: the normal of counter_noise for (key, step, parameter,
//                                        first_element + j), same as add_counter_noise; with a
//                                        secret key that of secure_noise, and its grid
//   value, moments = update rule of g
// The reference is ATen operations in that order, wherever no kernel runs; it leaves g in the
// part's grad. The GPU's kernel leaves grad and rows as they are; the CPU's is in
// fused_update_cpu.h.
//
// Tolerance of the GPU's kernel against the reference: g within 1e-6 of |g| + std |z| (float32
// throughout; the reference sums noise in double and rounds once), values and moments within what
// that and one rounding to their dtype make of it. Double values are computed in double from
// float32 normals.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/fused_update/fused_update_launch.h"

namespace moonshard::kernels {

struct UpdatePart {
  at::Tensor value;  ///< float32, bfloat16 or double, contiguous; changed in place
  at::Tensor low;    ///< where defined, value is the high half (split_float/split_float.h)
  at::Tensor grad;   ///< as many numbers as value, any float dtype; may be undefined
  /// [B, shape of value] and [B], or for gradients in 16 bits [B, elements of the parameter / 128]:
  /// factors times units (flash_norm.h). A factor of 0 leaves the row out.
  at::Tensor rows, row_factors;
  at::Tensor first_moment;    ///< Momentum: the sum; Adam: the mean
  at::Tensor second_moment;   ///< Adam: the mean square
  int64_t steps = 0;          ///< Adam: updates of this part, this one counted
  uint32_t parameter = 0;     ///< names the noise stream
  int64_t first_element = 0;  ///< of the part in its flattened parameter
};

struct UpdateRule {
  UpdateKind kind = UpdateKind::Sgd;
  double lr = 0, momentum = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  /// Adam: where above 0, the corrected mean square minus this, and at least noise_floor, stands
  /// under the root, without eps (DP-AdamBC, Tang et al. 2024). By the reference alone.
  double noise_variance = 0, noise_floor = 0;
};

/// Applied to the gradient first. A std of 0 draws nothing.
struct UpdateNoise {
  double std = 0, denominator = 1;
  uint64_t key = 0;  ///< of reproducible noise (counter_noise)
  uint32_t step = 0;
  /// Where given, noise is drawn under this key, and sums are rounded to its grid (secure_noise).
  const ChaChaKey* secret = nullptr;
};

/// On the current stream. Parts of any dtypes and alignments may be mixed; they must not overlap. A
/// part with neither grad nor rows is updated by noise alone.
void fused_update(std::vector<UpdatePart>& parts, const UpdateRule& rule, const UpdateNoise& noise);

/// The definition of correct: ATen operations.
void fused_update_ref(std::vector<UpdatePart>& parts, const UpdateRule& rule,
                      const UpdateNoise& noise);

/// Every part's value becomes its gradient: grad, weighted rows, or both; zeros where it has
/// neither. One launch, whatever the parts' number.
void take_gradients(std::vector<UpdatePart>& parts);

/// grad + sum over b of factors[b] x rows[b], in the shape of `grad`, float32 or wider; grad is
/// added to in place, or undefined. Factors and `first_element` as in UpdatePart. Rows of factor 0
/// are left out even where they are not finite.
at::Tensor add_weighted_rows(const at::Tensor& grad, const at::Tensor& rows,
                             const at::Tensor& row_factors, int64_t first_element = 0);
at::Tensor add_weighted_rows_ref(const at::Tensor& grad, const at::Tensor& rows,
                                 const at::Tensor& row_factors, int64_t first_element = 0);

/// The part's rows become part of its grad.
void sum_up_rows(UpdatePart& part);

}  // namespace moonshard::kernels
