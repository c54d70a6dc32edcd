// Raw launchers of cross_entropy: contiguous rows of `width` scores.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

struct CrossEntropy {
  const void* scores = nullptr;     ///< [rows, width]
  const int64_t* labels = nullptr;  ///< [rows]
  int64_t ignored_label = 0;
  int64_t rows = 0, width = 0;
  float cap = 0;  ///< of soft-capped scores, cap tanh(s / cap); 0: they are as they are
  NumberFormat format = NumberFormat::Float32;
};

/// losses and log_sums [rows].
void launch_cross_entropy_forward(const CrossEntropy& p, float* losses, float* log_sums,
                                  void* stream);

/// factors [rows]; gradient [rows, width] may be the scores themselves.
void launch_cross_entropy_backward(const CrossEntropy& p, const float* log_sums,
                                   const float* factors, void* gradient, void* stream);

}  // namespace moonshard::kernels
