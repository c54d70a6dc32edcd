// The portable tensor-core kernels' arithmetic of places, walked through on the CPU: fragments are
// gathered and multiplied as the instructions ldmatrix and mma.m16n8k16 define it.
#include "kernels/common/mma_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>
#include <vector>

namespace moonshard::kernels::mma {
namespace {

using Memory = std::vector<int>;  // an element each; addresses are bytes, 2 per element
using Pair = std::array<int, 2>;
using Register = std::array<Pair, 32>;  // of all lanes

// ldmatrix.x4: lanes 8 q ... 8 q + 7 point to the rows of matrix q.
std::array<Register, 4> load(const Memory& memory, const std::array<unsigned, 32>& address,
                             bool transposed) {
  std::array<Register, 4> result;
  for (int q = 0; q < 4; ++q) {
    const auto element = [&](int row, int column) {
      return memory.at(address[static_cast<size_t>(8 * q + row)] / 2 +
                       static_cast<unsigned>(column));
    };
    for (int lane = 0; lane < 32; ++lane) {
      const int outer = lane / 4, inner = 2 * (lane % 4);
      result[static_cast<size_t>(q)][static_cast<size_t>(lane)] =
          transposed ? Pair{element(inner, outer), element(inner + 1, outer)}
                     : Pair{element(outer, inner), element(outer, inner + 1)};
    }
  }
  return result;
}

// Adds one mma.m16n8k16 to `to`, [16][8].
void multiply(std::array<std::array<int, 8>, 16>& to, const std::array<Register, 4>& left,
              const std::array<Register, 2>& right) {
  int a[16][16] = {}, b[16][8] = {};
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t outer = lane / 4, inner = 2 * (lane % 4);
    for (size_t v = 0; v < 2; ++v) {
      a[outer][inner + v] = left[0][lane][v];
      a[outer + 8][inner + v] = left[1][lane][v];
      a[outer][inner + 8 + v] = left[2][lane][v];
      a[outer + 8][inner + 8 + v] = left[3][lane][v];
      b[inner + v][outer] = right[0][lane][v];
      b[inner + 8 + v][outer] = right[1][lane][v];
    }
  }
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 8; ++n) {
      for (size_t k = 0; k < 16; ++k) to[m][n] += a[m][k] * b[k][n];
    }
  }
}

int left_value(int m, int k) {
  return (m * 7 + k * 13 + m * k) % 23 - 11;
}
int right_value(int n, int k) {
  return (n * 5 + k * 17 + n * k) % 19 - 9;
}

// Both operands as the kernels' copies place them, the right one behind the left one.
template <class Layout>
Memory stored(int terms) {
  const int tile_bytes = (Layout::kTransposed ? terms : kBlockTile) * Layout::kRowBytes;
  Memory memory(static_cast<size_t>(tile_bytes));  // two tiles of two bytes an element
  for (int across = 0; across < kBlockTile; ++across) {
    for (int k = 0; k < terms; ++k) {
      const int row = Layout::kTransposed ? k : across, column = Layout::kTransposed ? across : k;
      const int at = unit_at<Layout::kRowBytes>(row, column / kUnit) / 2 + column % kUnit;
      memory[static_cast<size_t>(at)] = left_value(across, k);
      memory[static_cast<size_t>(at + tile_bytes / 2)] = right_value(across, k);
    }
  }
  return memory;
}

void expect_no_bank_conflicts(const std::array<unsigned, 32>& address) {
  for (size_t q = 0; q < 4; ++q) {
    std::set<unsigned> banks;
    for (size_t row = 0; row < 8; ++row) banks.insert(address[8 * q + row] % 128 / kUnitBytes);
    EXPECT_EQ(banks.size(), 8U);
  }
}

template <class Layout>
void expect_product(int terms) {
  const Memory memory = stored<Layout>(terms);
  const unsigned right_tile = static_cast<unsigned>(memory.size());
  for (int warp = 0; warp < kBlockWarps; ++warp) {
    for (int m = 0; m < kWarpRows / 16; ++m) {
      for (int n = 0; n < kWarpColumns / 16; ++n) {
        std::array<std::array<int, 8>, 16> got[2] = {};
        for (int along = 0; along < terms / 16; ++along) {
          std::array<unsigned, 32> left{}, right{};
          for (int lane = 0; lane < 32; ++lane) {
            const auto of_left = static_cast<unsigned>(Layout::left(lane, warp_row(warp)));
            const auto of_right = static_cast<unsigned>(Layout::right(lane, warp_column(warp)));
            left[static_cast<size_t>(lane)] = Layout::step(of_left, m, along);
            right[static_cast<size_t>(lane)] = Layout::step(right_tile + of_right, n, along);
          }
          expect_no_bank_conflicts(left);
          expect_no_bank_conflicts(right);
          const auto a = load(memory, left, Layout::kTransposed);
          const auto b = load(memory, right, Layout::kTransposed);
          multiply(got[0], a, {b[0], b[1]});
          multiply(got[1], a, {b[2], b[3]});
        }
        for (int row = 0; row < 16; ++row) {
          for (int column = 0; column < 16; ++column) {
            int want = 0;
            for (int k = 0; k < terms; ++k) {
              want += left_value(warp_row(warp) + 16 * m + row, k) *
                      right_value(warp_column(warp) + 16 * n + column, k);
            }
            ASSERT_EQ(got[column / 8][static_cast<size_t>(row)][static_cast<size_t>(column % 8)],
                      want)
                << "warp " << warp << ", row " << 16 * m + row << ", column " << 16 * n + column;
          }
        }
      }
    }
  }
}

TEST(MmaLayout, FragmentsGiveTheProductWhenTheSumRunsAlongRows) {
  expect_product<SumFirst>(32);
}

TEST(MmaLayout, FragmentsGiveTheProductWhenTheSumRunsAlongColumns) {
  expect_product<SumLast>(64);
}

TEST(MmaLayout, BandsHoldEveryTileOnce) {
  for (const int rows : {1, 2, 7, 8, 9, 16, 23, 112}) {
    for (const int columns : {1, 3, 8, 31}) {
      std::set<std::pair<int, int>> seen;
      for (int tile = 0; tile < rows * columns; ++tile) {
        const TilePlace place = banded_tile(rows, columns, tile);
        EXPECT_TRUE(place.row >= 0 && place.row < rows && place.column >= 0 &&
                    place.column < columns);
        seen.insert({place.row, place.column});
      }
      EXPECT_EQ(seen.size(), static_cast<size_t>(rows * columns));
    }
  }
}

TEST(MmaLayout, TheTriangleHoldsEveryTileOnce) {
  int tile = 0;
  for (int row = 0; row < 12'000; ++row) {  // more than the longest sample has
    for (const int column : {0, row / 2, row}) {
      const TilePlace place = triangle_tile(tile + column);
      ASSERT_EQ(place.row, row);
      ASSERT_EQ(place.column, column);
    }
    tile += row + 1;
  }
}

}  // namespace
}  // namespace moonshard::kernels::mma
