// Which tiles of the symmetric Gram matrices are computed, and by whom. Pure arithmetic, the same
// on host and device: tests count the tiles on the CPU.
//
// A sample's matrix has n x n tiles; those on and below the diagonal are needed. Two blocks of
// threads form a cluster and take a pair of tiles each time:
//   joined  rows 2m and 2m+1 of one column c <= 2m. Both need the column's operand: each block
//           fetches half of it for both.
//   apart   what is left: diagonal tiles of odd rows, and the last row where n is odd. Any two of
//           them, of any samples; each block fetches for itself.
// With h = n / 2 (rounded down) there are h^2 joined pairs in a sample (row pair m has 2m + 1 of
// them, so pair p lies in row pair floor(sqrt p)), and h + (n odd ? n : 0) single tiles.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define MS_GHOST_INLINE __host__ __device__ inline
#else
#define MS_GHOST_INLINE inline
#endif

namespace moonshard::kernels {

/// The tiles of one group: `samples` matrices of n x n tiles.
struct GhostTileGrid {
  int samples = 0, n = 0;

  MS_GHOST_INLINE int half() const { return n / 2; }
  MS_GHOST_INLINE int joined_pairs() const { return half() * half(); }
  MS_GHOST_INLINE int single_tiles() const { return half() + (n % 2 != 0 ? n : 0); }
  /// Tiles of one sample on and below the diagonal.
  MS_GHOST_INLINE int tiles() const { return n * (n + 1) / 2; }
  /// Pairs of tiles: what a cluster takes at a time.
  MS_GHOST_INLINE int items() const {
    return samples * joined_pairs() + (samples * single_tiles() + 1) / 2;
  }
};

struct GhostTile {
  int sample = 0, row = 0, column = 0;
  int slot = 0;         ///< the tile's number within its sample, 0 ... tiles() - 1
  bool joined = false;  ///< the pair shares its column
  bool real = true;  ///< false for the second block when one tile was left: it repeats the first's
};

/// The tile of block `rank` (0 or 1) of the pair `item`.
MS_GHOST_INLINE GhostTile ghost_tile(const GhostTileGrid& grid, int item, int rank) {
  const int pairs = grid.joined_pairs();
  GhostTile tile;
  if (item < grid.samples * pairs) {
    tile.sample = item / pairs;
    const int pair = item - tile.sample * pairs;
    int m = static_cast<int>(sqrtf(static_cast<float>(pair)));
    while (m * m > pair) --m;  // the float's root may be off by one for large numbers
    while ((m + 1) * (m + 1) <= pair) ++m;
    tile.row = 2 * m + rank;
    tile.column = pair - m * m;
    tile.slot = 2 * pair + rank;
    tile.joined = true;
    return tile;
  }
  const int singles = grid.single_tiles(), total = grid.samples * singles;
  int single = 2 * (item - grid.samples * pairs) + rank;
  tile.real = single < total;
  if (!tile.real) single = total - 1;
  tile.sample = single / singles;
  single -= tile.sample * singles;
  tile.slot = 2 * pairs + single;
  if (single < grid.half()) {
    tile.row = tile.column = 2 * single + 1;
  } else {
    tile.row = grid.n - 1;
    tile.column = single - grid.half();
  }
  return tile;
}

}  // namespace moonshard::kernels

#undef MS_GHOST_INLINE
