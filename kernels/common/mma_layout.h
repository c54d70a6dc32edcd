// Where a tile's elements lie in shared memory for multiplication by mma.sync, from where each lane
// reads its fragments, and which tile a block of threads takes. Pure arithmetic, the same on host
// and device: a test multiplies by it on the CPU.
//
// A tile is stored row by row in units of 8 elements (16 bytes). Unit u of row r lies at place
// u ^ (r mod 8) of its row: eight rows' units of one column, which ldmatrix reads at a time, lie in
// eight different groups of banks. Both layouts start at multiples of 256 bytes, so that a step
// along the units is an exclusive or of the address.
#pragma once

#include <cmath>

#if defined(__CUDACC__)
#define MS_MMA_INLINE __host__ __device__ __forceinline__
#else
#define MS_MMA_INLINE inline
#endif

namespace moonshard::kernels::mma {

constexpr int kUnit = 8;  // elements of 16 bytes
constexpr int kUnitBytes = 16;
constexpr int kBlockTile = 128;  // rows and columns of a block's tile of the result
constexpr int kBlockWarps = 8;   // two by four
constexpr int kWarpRows = 64, kWarpColumns = 32;

MS_MMA_INLINE int warp_row(int warp) {
  return warp / 4 * kWarpRows;
}
MS_MMA_INLINE int warp_column(int warp) {
  return warp % 4 * kWarpColumns;
}

/// Bytes from a tile's start to a unit.
template <int kRowBytes>
MS_MMA_INLINE int unit_at(int row, int unit) {
  return row * kRowBytes + (unit ^ (row & 7)) * kUnitBytes;
}

/// The sum runs along the rows: [sum][128], as operands [positions, width] lie when positions are
/// summed. ldmatrix transposes.
struct SumFirst {
  static constexpr bool kTransposed = true;
  static constexpr int kRowBytes = kBlockTile * 2;

  /// Where lane `lane` points ldmatrix.x4 for the left operand's 16 x 16 fragment at row m, and for
  /// two of the right operand's 16 x 8 fragments at column n.
  MS_MMA_INLINE static int left(int lane, int m) {
    return unit_at<kRowBytes>(lane % 8 + lane / 16 * 8, m / kUnit + lane / 8 % 2);
  }
  MS_MMA_INLINE static int right(int lane, int n) {
    return unit_at<kRowBytes>(lane % 16, n / kUnit + lane / 16);
  }
  /// The same, `across` times 16 rows (columns) and `along` times 16 terms of the sum further.
  MS_MMA_INLINE static unsigned step(unsigned address, int across, int along) {
    return (address ^ static_cast<unsigned>(across * 2 * kUnitBytes)) +
           static_cast<unsigned>(along * 16 * kRowBytes);
  }
};

/// The sum runs along the columns: [128][64], as operands [positions, width] lie when the width is
/// summed.
struct SumLast {
  static constexpr bool kTransposed = false;
  static constexpr int kRowBytes = 64 * 2;

  MS_MMA_INLINE static int left(int lane, int m) {
    return unit_at<kRowBytes>(m + lane % 16, lane / 16);
  }
  MS_MMA_INLINE static int right(int lane, int n) {
    return unit_at<kRowBytes>(n + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }
  MS_MMA_INLINE static unsigned step(unsigned address, int across, int along) {
    return (address ^ static_cast<unsigned>(along * 2 * kUnitBytes)) +
           static_cast<unsigned>(across * 16 * kRowBytes);
  }
};

struct TilePlace {
  int row = 0, column = 0;
};

/// Tile `tile` of rows x columns. Bands of eight rows, and within a band column by column: blocks
/// that run at the same time read few rows and few columns.
MS_MMA_INLINE TilePlace banded_tile(int rows, int columns, int tile) {
  constexpr int kBand = 8;
  const int band = tile / (kBand * columns), within = tile - band * kBand * columns;
  const int height = rows - band * kBand < kBand ? rows - band * kBand : kBand;
  return {band * kBand + within % height, within / height};
}

/// Tile `tile` of those on and below the diagonal, row by row.
MS_MMA_INLINE TilePlace triangle_tile(int tile) {
  int row = static_cast<int>((sqrtf(8.0f * static_cast<float>(tile) + 1.0f) - 1.0f) * 0.5f);
  while (row * (row + 1) / 2 > tile) --row;  // the float's root may be off for large numbers
  while ((row + 1) * (row + 2) / 2 <= tile) ++row;
  return {row, tile - row * (row + 1) / 2};
}

}  // namespace moonshard::kernels::mma

#undef MS_MMA_INLINE
