// Multiplication of bfloat16 tiles by mma.sync, for every GPU since Ampere: asynchronous copies
// into shared memory, fragments out of it, and sums that do not drift.
//
// The tensor cores truncate where float32 would round, in steps that differ by generation (8 terms
// on Ampere and Ada, 16 on Hopper). Over thousands of terms of one sign this adds up to 1e-5 and
// more of the sum, always towards zero. Here they add 32 terms at most; those sums are added in
// float32, which rounds to nearest. The remaining error is below 1e-7 of the sum, whatever its
// length.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/common/mma_layout.h"
#include "kernels/common/shared_address.cuh"

namespace moonshard::kernels::mma {

constexpr int kThreads = kBlockWarps * 32;
constexpr int kTerms = 32;  // of the sum that tensor cores add before float32 does

/// A warp's piece of the block's tile. Values 0, 1 of a fragment lie in row lane / 4, columns
/// 2 (lane % 4) and one more; values 2, 3 eight rows below.
using WarpTile = float[kWarpRows / 16][kWarpColumns / 8][4];

/// Starts copying 16 bytes to shared memory; zeros, without reading, unless `inside`.
__device__ __forceinline__ void copy_unit(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(inside ? kUnitBytes : 0)
               : "memory");
}

/// Ends a group of copies; a group may be empty.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/// Waits for this thread's copies, except the last kMostPending groups.
template <int kMostPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kMostPending) : "memory");
}

template <bool kTransposed>
__device__ __forceinline__ void load_fragments(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d,
                                               uint32_t address) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address)
                 : "memory");
  }
}

/// result = left right + before.
__device__ __forceinline__ void multiply(float (&result)[4], const uint32_t (&left)[4],
                                         const uint32_t (&right)[2], const float (&before)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
      : "=f"(result[0]), "=f"(result[1]), "=f"(result[2]), "=f"(result[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]),
        "f"(before[0]), "f"(before[1]), "f"(before[2]), "f"(before[3]));
}

/// Adds kTerms terms to a warp's tile: those from term 16 * along on. `left` and `right` are the
/// lane's addresses (Layout::left and right, plus where the tiles start).
template <class Layout>
__device__ __forceinline__ void add_terms(WarpTile& sum, uint32_t left, uint32_t right, int along) {
  constexpr int kSteps = kTerms / 16;
  uint32_t b[kSteps][kWarpColumns / 8][2];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int n = 0; n < kWarpColumns / 16; ++n)
      load_fragments<Layout::kTransposed>(b[k][2 * n][0], b[k][2 * n][1], b[k][2 * n + 1][0],
                                          b[k][2 * n + 1][1], Layout::step(right, n, along + k));
  }
#pragma unroll
  for (int m = 0; m < kWarpRows / 16; ++m) {
    uint32_t a[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      load_fragments<Layout::kTransposed>(a[k][0], a[k][1], a[k][2], a[k][3],
                                          Layout::step(left, m, along + k));
#pragma unroll
    for (int n = 0; n < kWarpColumns / 8; ++n) {
      float part[4] = {0, 0, 0, 0};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) multiply(part, a[k], b[k][n], part);
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[m][n][v] += part[v];
    }
  }
}

}  // namespace moonshard::kernels::mma
