// Raw launchers of layer_norm: contiguous rows of `width` numbers; a null pointer leaves its part
// of layer_norm.h's formulas out.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

inline constexpr int64_t kLayerNormMostWidth = 4096;

/// A row for each sample; `stride` numbers from one to the next.
struct SampleRows {
  const void* data = nullptr;
  int64_t stride = 0;
};

struct LayerNormForward {
  const void *x = nullptr, *branch = nullptr;
  SampleRows gate, scale, shift;
  const void *weight = nullptr, *bias = nullptr;
  void *y = nullptr, *result = nullptr;              ///< y is written when there is a branch
  float *mean = nullptr, *inverse_spread = nullptr;  ///< [samples * tokens]
  int64_t samples = 0, tokens = 0;
  int width = 0;
  float eps = 0;
  NumberFormat format = NumberFormat::Float32, weight_format = NumberFormat::Float32;
};

/// weight and bias are of the rows' dtype, or float32.
void launch_layer_norm_forward(const LayerNormForward& p, void* stream);

struct LayerNormBackward {
  const void *d_result = nullptr, *dy = nullptr, *y = nullptr, *branch = nullptr;
  SampleRows gate, scale;
  const void *weight = nullptr, *bias = nullptr;
  const float *mean = nullptr, *inverse_spread = nullptr;
  void *dx = nullptr, *d_branch = nullptr;  ///< d_branch may be d_result itself
  void *normalised = nullptr, *dn = nullptr;
  /// [samples, width] each, contiguous, in the rows' dtype; null: not computed.
  void *d_gate = nullptr, *d_scale = nullptr, *d_shift = nullptr;
  float *weight_rows = nullptr, *bias_rows = nullptr;  ///< [samples, width]
  float* chunk_sums = nullptr;  ///< [samples, chunks, 3, width], work space; null: no sums at all
  int64_t samples = 0, tokens = 0;
  int chunks = 1;  ///< parts of a sample's tokens, each summed by one block; at most `tokens`
  int width = 0;
  NumberFormat format = NumberFormat::Float32, weight_format = NumberFormat::Float32;
};

void launch_layer_norm_backward(const LayerNormBackward& p, void* stream);

}  // namespace moonshard::kernels
