// The CPU's normals, many at a time: for kernels that have a stretch of a gradient in the cache.
#pragma once

#include <cstdint>

#include "kernels/counter_noise/counter_noise_launch.h"

namespace moonshard::kernels {

inline constexpr int64_t kCounterBlocks = 64;                   ///< of four normals each
inline constexpr int64_t kCounterGranule = 4 * kCounterBlocks;  ///< normals

/// Normals granule x kCounterGranule … of the stream, in order.
void draw_counter_granule(const NoiseStream& stream, int64_t granule, float* normals);

/// data[i] += std z, z the normals first, first + 1, … of the stream. Summed in double: the only
/// rounding is the target's.
template <class T>
void add_counter_range(T* data, int64_t count, double std, const NoiseStream& stream,
                       int64_t first) {
  float normals[kCounterGranule];
  for (int64_t done = 0; done < count;) {
    const int64_t element = first + done, skip = element % kCounterGranule;
    const int64_t here =
        count - done < kCounterGranule - skip ? count - done : kCounterGranule - skip;
    draw_counter_granule(stream, element / kCounterGranule, normals);
    for (int64_t i = 0; i < here; ++i) {
      data[done + i] = static_cast<T>(static_cast<double>(data[done + i]) +
                                      std * static_cast<double>(normals[skip + i]));
    }
    done += here;
  }
}

}  // namespace moonshard::kernels
