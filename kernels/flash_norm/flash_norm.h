// Squared norms of per-sample gradients of linear layers without storing these gradients (or with
// storing them once, in float16): ||g_b^T a_b||^2 for all samples b of a list of layers.
//
// Dispatch: for bfloat16 operands that flash_norm_supports() accepts, on Hopper its kernel and on
// other GPUs since Ampere a portable one; everything else (CPU, float32, odd widths, gradients to
// be kept without Hopper) goes through the reference, problem by problem.
//
// Accuracy of the Hopper kernel: products are exact, sums are float32 in the tensor cores, which
// cut off instead of rounding. A gradient element errs by at most (T / 16 + 1) 2^-23 of sum_t |g_t|
// |a_t|, typically by 1e-6 of it; the sum of squares itself adds 2e-6 relative at most.
// position_lengths gives that sum to callers that need an upper bound. Squares of elements
// beyond 1e19 are infinite and below 1e-22 vanish, except in kept gradients, which have units. The
// portable kernel lets the tensor cores add 32 products at most and errs by 1e-6 of sum_t |g_t|
// |a_t| at most. The same input gives the same bits.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/common/sample_problem.h"
#include "kernels/flash_norm/flash_norm_launch.h"

namespace moonshard::kernels {

/// Whether a kernel takes it where nothing is kept; otherwise flash_norm uses the reference, which
/// is slow on a GPU.
bool flash_norm_supports(const SampleProblem& problem);

/// A gradient in 16 bits: numbers in float16 [B, o, i], contiguous, and their units in float32 [B,
/// o i / 128], rows contiguous, powers of two. Number times unit is an element of the gradient,
/// rounded to nearest. The largest of 128 neighbours in a row is between 2^14 and 2^15, unless it
/// is 0 or below 2^-86 (the least unit is 2^-100); where one of them is not finite their unit is 1.
struct KeptGradient {
  at::Tensor numbers, units;
  bool defined() const { return numbers.defined(); }
};

/// Memory for gradients of problems that must have whole units (has_whole_units). Their units are
/// columns of one tensor [B, all of them].
struct KeptGradients {
  std::vector<KeptGradient> of;  ///< each problem
  at::Tensor units;
};
KeptGradients empty_kept(const std::vector<SampleProblem>& problems);

/// Squares [n, B] in double. `kept`: empty, or one per problem, undefined for the norm only; its
/// memory receives g_b^T a_b. The squares of a kept gradient are those of the rounded values: the
/// norm of what is kept.
at::Tensor flash_norm(const std::vector<SampleProblem>& problems,
                      const std::vector<KeptGradient>& kept = {});

/// The definition of correct, for one problem: squares [B] in double. `kept` may be undefined.
at::Tensor flash_norm_ref(const SampleProblem& problem, const KeptGradient& kept);

}  // namespace moonshard::kernels
