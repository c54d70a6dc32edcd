// One linear layer whose per-sample gradients g_b^T a_b are computed, and what the kernels require
// of it.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/common/choice.h"
#include "kernels/common/sample_operands.h"

namespace moonshard::kernels {

struct SampleProblem {
  at::Tensor a;  ///< [B, T, i], inputs
  at::Tensor g;  ///< [B, T, o], gradients of the outputs
};

/// Throws unless a and g are 3-dimensional, of one dtype, on one device, and agree in B and T.
void check_sample_problem(const char* operation, const SampleProblem& problem);

/// Throws unless there is a problem and all have the same number of samples, which it returns.
int64_t check_sample_problems(const char* operation, const std::vector<SampleProblem>& problems);

/// Whether the tensor-core kernels take it: on a suitable GPU, bfloat16, contiguous rows that start
/// at multiples of 16 bytes (required by asynchronous copies), widths that are multiples of 8, and
/// not empty. Otherwise one logged line says why (on a GPU).
bool sample_gemm_takes(const char* operation, const SampleProblem& problem,
                       Needs needs = Needs::Hopper);

/// The problem as launchers take it. Strides of dimensions of size 1 are made valid ones.
SampleOperands operands_of(const SampleProblem& problem);

}  // namespace moonshard::kernels
