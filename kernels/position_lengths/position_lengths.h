// L[b] = sum over positions t of |a_t| |g_t| (Euclidean lengths of rows): an upper bound of every
// element of g_b^T a_b and of its norm, computed from the operands alone. Used to scale gradients
// that are kept in float16, and as the measure of rounding errors of norms.
//
// Dispatch: the kernel on any GPU for float32 and bfloat16 with contiguous rows, otherwise the
// reference. A tensor that several problems share is read once.
// Both are never below the exact L and at most 2e-5 above it; lengths beyond the range of float32
// neither vanish nor overflow. Infinity and NaN pass through.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/common/sample_problem.h"
#include "kernels/position_lengths/norm_margins.h"
#include "kernels/position_lengths/position_lengths_launch.h"

namespace moonshard::kernels {

/// [n, B] in double. `spreads`, of the same shape: (sum of |a_t|)^2 + (sum of |g_t|)^2, which
/// bounds what products of rows lose where they are too small for float32.
at::Tensor position_lengths(const std::vector<SampleProblem>& problems,
                            at::Tensor* spreads = nullptr);

/// The definition of correct, for one problem: [B] in double.
at::Tensor position_lengths_ref(const SampleProblem& problem, at::Tensor* spreads = nullptr);

/// What is known of a problem's squared norms.
struct FoundSquares {
  NormSource source = NormSource::OnePosition;
  at::Tensor value;      ///< [B] double, contiguous; undefined for one position
  at::Tensor magnitude;  ///< [B]; of Gram matrices: the sum of absolute values
  /// [B] each, or undefined: bounds on what position_lengths gives, for Gram matrices. Rows are
  /// then not read.
  at::Tensor length{}, spread{};
};

/// Squared norms [n, B] in double that are never too small: those that were found by ghost_norm
/// (Gram) or flash_norm (Gradient), each with its margin (norm_margins.h), and those of problems of
/// one position, |a_b|^2 |g_b|^2, which need none. One launch beside that of the rows' lengths.
at::Tensor bounded_squares(const std::vector<SampleProblem>& problems,
                           const std::vector<FoundSquares>& found);

/// The definition of correct, for one problem: [B].
at::Tensor bounded_squares_ref(const SampleProblem& problem, const FoundSquares& found);

}  // namespace moonshard::kernels
