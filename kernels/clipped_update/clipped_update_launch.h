// The part of clipped_update that needs no ATen.
#pragma once

#include <cstdint>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/fused_update/fused_update_launch.h"

namespace moonshard::kernels {

/// A layer's operands and the part that its sum updates: the whole weight [o, i], contiguous, its
/// noise from element 0 on; `part.grad` is null or float32 [o, i], added to the sum; no rows.
struct ClippedUpdateProblem {
  SampleOperands in;
  RawUpdatePart part;
};

/// Columns of a weight must be a multiple of it: then a row of a tile has whole blocks of noise.
constexpr int64_t kClippedUpdateColumns = 256;

/// Fewest products of 64 positions that a tile should sum over: below it noise and update take
/// longer than the product that they run beside.
constexpr int64_t kClippedUpdateLeastTiles = 16;

/// Floats of scratch memory that a launch needs. For sums whose factors are too far apart for one
/// accumulator.
int64_t clipped_update_scratch();

/// The rule is Sgd, Adam or AdamW of values in Split or Bfloat16, with noise under a secret key. At
/// most kClippedSumSamples samples, the same number in all problems; any count of problems.
void launch_clipped_update(const ClippedUpdateProblem* problems, int count, const float* factors,
                           const RawUpdateRule& rule, GemmSchedule schedule, float* scratch,
                           void* cuda_stream);

}  // namespace moonshard::kernels
