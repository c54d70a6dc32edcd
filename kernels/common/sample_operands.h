// What a linear layer's gradient kernels read, without ATen: the inputs a [samples, positions, i]
// and the output gradients g [samples, positions, o] of one layer. The gradient of sample b is
// g_b^T a_b, [o, i].
#pragma once

#include <cstdint>

namespace moonshard::kernels {

struct SampleOperands {
  const void* a = nullptr;
  const void* g = nullptr;
  int64_t samples = 0, positions = 0;
  int64_t i = 0, o = 0;
  // Elements from row to row and from sample to sample.
  int64_t a_row = 0, a_sample = 0;
  int64_t g_row = 0, g_sample = 0;
};

/// How the two groups of multiplying warps share the work. Chosen: the faster one for the
/// operation.
enum class GemmSchedule {
  Chosen,
  Cooperative,  ///< both on one 128 x 256 tile: fewest bytes from L2
  Narrow,       ///< both on one 128 x 192 tile, for widths that 256 does not divide
  PingPong      ///< each on its own 64 x 256 tile: one stores while the other multiplies
};

}  // namespace moonshard::kernels
