// The part of flash_norm that needs no ATen.
#pragma once

#include <cstdint>

#include "kernels/common/sample_operands.h"

namespace moonshard::kernels {

struct FlashNormProblem {
  SampleOperands in;             ///< bfloat16, as sample_gemm_takes() asks
  void* kept = nullptr;          ///< float16 [samples, o, i], contiguous, or none
  const float* scale = nullptr;  ///< [samples], powers of two; with `kept` only
};

/// Floats of scratch memory that the launch below needs.
int64_t flash_norm_scratch(const FlashNormProblem* problems, int count, GemmSchedule schedule);

/// squares [count, samples]. All problems have the same number of samples. Any count: more than 16
/// become several launches.
void launch_flash_norm(const FlashNormProblem* problems, int count, float* scratch, double* squares,
                       GemmSchedule schedule, void* cuda_stream);

/// The same for any GPU since Ampere; norms only: `kept` must be none.
int64_t flash_norm_mma_scratch(const FlashNormProblem* problems, int count);
void launch_flash_norm_mma(const FlashNormProblem* problems, int count, float* scratch,
                           double* squares, void* cuda_stream);

}  // namespace moonshard::kernels
