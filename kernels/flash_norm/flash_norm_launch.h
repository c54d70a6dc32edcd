// The part of flash_norm that needs no ATen.
#pragma once

#include <cstdint>

#include "kernels/common/gradient_units.h"
#include "kernels/common/sample_operands.h"

namespace moonshard::kernels {

/// Whether a gradient [o, i] has whole units: it can be kept.
constexpr bool has_whole_units(int64_t i, int64_t o) {
  return i > 0 && (i % kUnitElements == 0 ||
                   (i >= 8 && kUnitElements % i == 0 && o * i % kUnitElements == 0));
}

struct FlashNormProblem {
  SampleOperands in;        ///< bfloat16, as sample_gemm_takes() asks
  void* kept = nullptr;     ///< float16 [samples, o, i], contiguous, with whole units, or none
  float* units = nullptr;   ///< [samples, o i / 128]; with `kept` only
  int64_t unit_sample = 0;  ///< units from sample to sample
};

/// Doubles of scratch memory that the launch below needs.
int64_t flash_norm_scratch(const FlashNormProblem* problems, int count, GemmSchedule schedule);

/// squares [count, samples]. All problems have the same number of samples. Any count: more than 16
/// become several launches.
void launch_flash_norm(const FlashNormProblem* problems, int count, double* scratch,
                       double* squares, GemmSchedule schedule, void* cuda_stream);

/// The same for any GPU since Ampere; norms only: `kept` must be none.
int64_t flash_norm_mma_scratch(const FlashNormProblem* problems, int count);
void launch_flash_norm_mma(const FlashNormProblem* problems, int count, double* scratch,
                           double* squares, void* cuda_stream);

}  // namespace moonshard::kernels
