// The two dtypes that the fused elementwise kernels read and write, without ATen.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

enum class NumberFormat { Float32, Bfloat16 };

/// Whether 16-byte accesses may be used: the pointer (null counts as aligned) is a multiple of 16.
inline bool is_aligned_16(const void* pointer) {
  return (reinterpret_cast<uintptr_t>(pointer) & 15u) == 0;
}

}  // namespace moonshard::kernels
