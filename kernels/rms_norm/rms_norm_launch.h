// Raw launchers of rms_norm: contiguous rows of `width` numbers.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

inline constexpr int64_t kRmsNormMostWidth = 8192;

struct RmsNormForward {
  const void *x = nullptr, *delta = nullptr;  ///< delta: null for none; then y is not written
  const void* weight = nullptr;
  void *y = nullptr, *n = nullptr;
  float* inverse_spread = nullptr;  ///< [rows]
  int64_t rows = 0;
  int width = 0;
  float eps = 0;
  NumberFormat format = NumberFormat::Float32, weight_format = NumberFormat::Float32;
};

/// The weight is of the rows' dtype, or float32.
void launch_rms_norm_forward(const RmsNormForward& p, void* stream);

struct RmsNormBackward {
  const void *dn = nullptr, *dy = nullptr, *y = nullptr;  ///< dy: null for none
  const float* inverse_spread = nullptr;
  const void* weight = nullptr;
  void *dx = nullptr, *normalised = nullptr;  ///< null: not computed
  float* weight_rows = nullptr;               ///< [samples, width]; null: not computed
  float* chunk_rows = nullptr;  ///< [samples, chunks, width], work space for weight_rows; unused
                                ///< when chunks is 1
  int64_t samples = 0, tokens = 0;
  int chunks = 1;  ///< parts of a sample's tokens, each summed by one block; at most `tokens`
  int width = 0;
  NumberFormat format = NumberFormat::Float32, weight_format = NumberFormat::Float32;
};

void launch_rms_norm_backward(const RmsNormBackward& p, void* stream);

}  // namespace moonshard::kernels
