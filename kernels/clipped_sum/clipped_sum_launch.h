// The part of clipped_sum that needs no ATen.
#pragma once

#include <cstdint>

#include "kernels/common/sample_operands.h"

namespace moonshard::kernels {

struct ClippedSumProblem {
  SampleOperands in;     ///< bfloat16, as sample_gemm_takes() asks
  float* out = nullptr;  ///< [o, i], 16-byte aligned rows
  int64_t out_row = 0;   ///< elements from row to row, a multiple of 4
};

/// Most samples of one launch: their factors lie in shared memory.
constexpr int64_t kClippedSumSamples = 2048;

struct ClippedSumPlan {
  GemmSchedule schedule = GemmSchedule::Chosen;
  int splits = 0;  ///< parts of the sum over samples and positions; 0: to be chosen

  /// Floats of scratch memory that the launch needs (none without splits).
  int64_t scratch = 0;
};

/// Fills in what the request leaves open. With fewer tiles than multiprocessors the sum of each
/// tile is split, and the parts are added in a fixed order afterwards.
ClippedSumPlan plan_clipped_sum(const ClippedSumProblem* problems, int count, ClippedSumPlan wish);

/// out = (accumulate: out +) sum over samples of factors[b] g_b^T a_b. At most kClippedSumSamples
/// samples, the same number in all problems; any count of problems.
void launch_clipped_sum(const ClippedSumProblem* problems, int count, const float* factors,
                        bool accumulate, const ClippedSumPlan& plan, float* scratch,
                        void* cuda_stream);

/// Samples of one position each, on any GPU: float32 or bfloat16, rows contiguous.
struct OuterSumProblem {
  SampleOperands in;  ///< row strides are not used
  bool bfloat16 = true;
  float* out = nullptr;  ///< [o, i], rows contiguous
  int64_t out_row = 0;
};

/// out = (accumulate: out +) sum over samples of factors[b] g_b a_b^T. Any number of samples, the
/// same in all problems; any count of problems.
void launch_outer_sum(const OuterSumProblem* problems, int count, const float* factors,
                      bool accumulate, void* cuda_stream);

}  // namespace moonshard::kernels
