// Gradients of samples in 16 bits: how many elements share a unit. flash_norm writes units,
// fused_update reads them as factors.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// Neighbours of a kept gradient [o, i], in a row, or whole rows where i is less.
inline constexpr int64_t kUnitElements = 128;

}  // namespace moonshard::kernels
