// Raw launcher of rotary.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

struct Rotary {
  void *q = nullptr, *k = nullptr;                   ///< [rows, heads, 2 half]
  const float *cosines = nullptr, *sines = nullptr;  ///< [tokens, half]
  int64_t rows = 0;                                  ///< samples x tokens
  int64_t tokens = 0;
  int q_heads = 0, k_heads = 0, half = 0;
  bool inverse = false;
  NumberFormat format = NumberFormat::Float32;
};

void launch_rotary(const Rotary& p, void* stream);

}  // namespace moonshard::kernels
