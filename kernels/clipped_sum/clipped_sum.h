// The clipped gradients of linear layers, added up: out = sum over b of c[b] g_b^T a_b in float32,
// for a list of layers and one factor per sample. What bookkeeping needs instead of a second pass.
//
// Dispatch: on Hopper the kernel, for bfloat16 operands that clipped_sum_supports() accepts and
// results whose rows start at multiples of 16 bytes; samples of one position, in bfloat16 and
// float32, by a kernel of their own on any GPU; everything else goes through the reference, problem
// by problem.
//
// Factors are applied to float32 accumulators, or with one position to operands in float32: no
// rounding to bfloat16.
// Factors may lie anywhere in 1e-30 ... 1e8; a factor of 0 drops the sample, whatever its data
// (infinity and NaN included). Error against exact arithmetic: at most (B T / 16 + 2 B)
// 2^-23 of the sum without signs (see flash_norm.h), typically 1e-6 of it.
// The same input gives the same bits.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/sample_problem.h"

namespace moonshard::kernels {

/// Whether the kernel takes it; otherwise clipped_sum uses the reference.
bool clipped_sum_supports(const SampleProblem& problem);

/// The same of samples of one position.
bool outer_sum_supports(const SampleProblem& problem);

/// factors [B] float32; out[p] float32 [o, i], rows contiguous. With `accumulate` the sum is added
/// to what out holds, otherwise it replaces it.
void clipped_sum(const std::vector<SampleProblem>& problems, const at::Tensor& factors,
                 std::vector<at::Tensor>& out, bool accumulate);

/// The definition of correct, for one problem; out in float32 or float64.
void clipped_sum_ref(const SampleProblem& problem, const at::Tensor& factors, at::Tensor& out,
                     bool accumulate);

}  // namespace moonshard::kernels
