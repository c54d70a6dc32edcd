// The CPU's noise, tile by tile: for kernels that have a tile of a gradient in the cache.
#pragma once

#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {

/// data[e] = round(data[e] + std z), e the kTileElements elements of one tile of the stream, as
/// add_secure_noise has them. `std` and `grid` are float_at_least and secure_grid of the deviation.
void add_secure_tile(float* data, float std, float grid, const SecureStream& stream, int64_t tile);
void add_secure_tile(double* data, float std, double grid, const SecureStream& stream,
                     int64_t tile);

/// The same for elements first … first + count of the stream, wherever tiles begin and end.
template <class T>
void add_secure_range(T* data, int64_t count, float std, T grid, const SecureStream& stream,
                      int64_t first) {
  T ends[kTileElements] = {};  // of a tile that is not all there
  for (int64_t done = 0; done < count;) {
    const int64_t tile = (first + done) / kTileElements, skip = (first + done) % kTileElements;
    const int64_t here = count - done < kTileElements - skip ? count - done : kTileElements - skip;
    if (here == kTileElements) {
      add_secure_tile(data + done, std, grid, stream, tile);
    } else {
      for (int64_t i = 0; i < here; ++i) ends[skip + i] = data[done + i];
      add_secure_tile(ends, std, grid, stream, tile);
      for (int64_t i = 0; i < here; ++i) data[done + i] = ends[skip + i];
    }
    done += here;
  }
}

}  // namespace moonshard::kernels
