// clipped_sum for samples of one position: out[o, i] = sum over b of c[b] g_b[o] a_b[i]. A product
// of the depth B, far too shallow for tensor cores: what it costs is the result, written once. All
// in float32: a factor is rounded no more than a number of the sum is.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/architecture.h"

namespace moonshard::kernels {
namespace {

constexpr int kOuterThreads = 256;
constexpr int kRows = 64, kColumns = 128, kSamples = 32;  // of a tile: o, i, and at a time
constexpr int kMostOuter = 16;                            // in one launch: a kernel parameter

struct OuterEntry {
  OuterSumProblem problem;
  unsigned first_block;
  unsigned columns;           // tiles along i
  bool vectors;               // 16-byte stores
  bool g_vectors, a_vectors;  // 16-byte loads
};
struct OuterTable {
  OuterEntry entry[kMostOuter];
  int count;
};

__device__ __forceinline__ float element(const OuterSumProblem& p, const void* data, int64_t at) {
  return p.bfloat16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at])
                    : static_cast<const float*>(data)[at];
}

// Eight numbers from an address on 16 bytes.
__device__ __forceinline__ void load_eight(const OuterSumProblem& p, const void* data, int64_t at,
                                           float (&to)[8]) {
  if (p.bfloat16) {
    const uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(data) + at);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      to[2 * n] = __uint_as_float(words[n] << 16);
      to[2 * n + 1] = __uint_as_float(words[n] & 0xffff0000u);
    }
  } else {
    const float4* from = reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
    const float4 low = from[0], high = from[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  }
}

// A tile of samples' numbers from `begin` on, each times its sample's factor if there are factors.
// Numbers beyond `end` are zero, and so is a sample whose counting factor is 0, whatever its data.
template <int kWidth, bool kScaled>
__device__ void load_samples(const OuterSumProblem& p, const void* data, int64_t stride,
                             bool vectors, const float* factors, int64_t first, int count,
                             int64_t begin, int64_t end, float (*tile)[kWidth]) {
  constexpr int kGroups = kWidth / 8;
#pragma unroll
  for (int from = 0; from < kSamples * kGroups; from += kOuterThreads) {
    const int at = from + static_cast<int>(threadIdx.x);
    const int b = at / kGroups, n = at % kGroups * 8;
    if (b >= count) break;
    const float factor = factors[b];
    const int64_t place = (first + b) * stride + begin + n;
    float numbers[8] = {};
    if (factor != 0 && vectors && begin + n + 8 <= end) {
      load_eight(p, data, place, numbers);
    } else if (factor != 0) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
        if (begin + n + j < end) numbers[j] = element(p, data, place + j);
    }
    if constexpr (kScaled) {
#pragma unroll
      for (int j = 0; j < 8; ++j) numbers[j] = factor != 0 ? factor * numbers[j] : 0.0f;
    }
    float4* to = reinterpret_cast<float4*>(&tile[b][n]);
    to[0] = make_float4(numbers[0], numbers[1], numbers[2], numbers[3]);
    to[1] = make_float4(numbers[4], numbers[5], numbers[6], numbers[7]);
  }
}

// Four numbers of a row, from `column` on.
__device__ void store(const OuterEntry& entry, bool accumulate, int64_t row, int64_t column,
                      const float* sum) {
  const OuterSumProblem& p = entry.problem;
  float* out = p.out + row * p.out_row + column;
  if (entry.vectors && column + 4 <= p.in.i) {
    float4 all = make_float4(sum[0], sum[1], sum[2], sum[3]);
    if (accumulate) {
      const float4 before = *reinterpret_cast<const float4*>(out);
      all = make_float4(before.x + all.x, before.y + all.y, before.z + all.z, before.w + all.w);
    }
    *reinterpret_cast<float4*>(out) = all;
    return;
  }
  for (int n = 0; n < 4 && column + n < p.in.i; ++n) out[n] = accumulate ? out[n] + sum[n] : sum[n];
}

// A tile per block; 4 rows and 4 + 4 columns per thread.
__global__ void __launch_bounds__(kOuterThreads)
    clipped_sum_outer_kernel(const __grid_constant__ OuterTable table, const float* factors,
                             bool accumulate) {
  __shared__ __align__(16) float g[kSamples][kRows];
  __shared__ __align__(16) float a[kSamples][kColumns];
  __shared__ float factor_of[kSamples];
  int which = 0;
  while (which + 1 < table.count && blockIdx.x >= table.entry[which + 1].first_block) ++which;
  const OuterEntry& entry = table.entry[which];
  const OuterSumProblem& p = entry.problem;
  const unsigned tile = blockIdx.x - entry.first_block;
  const int64_t row = int64_t{tile / entry.columns} * kRows;
  const int64_t column = int64_t{tile % entry.columns} * kColumns;
  const int my_row = threadIdx.x / 16 * 4, my_column = threadIdx.x % 16 * 4;
  float sum[4][8] = {};
  for (int64_t first = 0; first < p.in.samples; first += kSamples) {
    const int64_t left = p.in.samples - first;
    const int count = left < kSamples ? static_cast<int>(left) : kSamples;
    if (static_cast<int>(threadIdx.x) < count)
      factor_of[threadIdx.x] = factors[first + threadIdx.x];
    __syncthreads();
    load_samples<kRows, true>(p, p.in.g, p.in.g_sample, entry.g_vectors, factor_of, first, count,
                              row, p.in.o, g);
    load_samples<kColumns, false>(p, p.in.a, p.in.a_sample, entry.a_vectors, factor_of, first,
                                  count, column, p.in.i, a);
    __syncthreads();
    for (int b = 0; b < count; ++b) {
      const float4 x = *reinterpret_cast<const float4*>(&g[b][my_row]);
      const float4 y = *reinterpret_cast<const float4*>(&a[b][my_column]);
      const float4 z = *reinterpret_cast<const float4*>(&a[b][my_column + kColumns / 2]);
      const float xs[4] = {x.x, x.y, x.z, x.w};
      const float ys[8] = {y.x, y.y, y.z, y.w, z.x, z.y, z.z, z.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 8; ++c) sum[r][c] = fmaf(xs[r], ys[c], sum[r][c]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (row + my_row + r >= p.in.o) break;
    store(entry, accumulate, row + my_row + r, column + my_column, sum[r]);
    store(entry, accumulate, row + my_row + r, column + my_column + kColumns / 2, sum[r] + 4);
  }
}

}  // namespace

void launch_outer_sum(const OuterSumProblem* problems, int count, const float* factors,
                      bool accumulate, void* cuda_stream) {
  for (int done = 0; done < count; done += kMostOuter) {
    OuterTable table{};
    table.count = std::min(kMostOuter, count - done);
    unsigned blocks = 0;
    for (int n = 0; n < table.count; ++n) {
      const OuterSumProblem& p = problems[done + n];
      const auto columns = static_cast<unsigned>((p.in.i + kColumns - 1) / kColumns);
      const int64_t eight_bytes = p.bfloat16 ? 16 : 32;
      const auto on_vectors = [&](const void* data, int64_t stride) {
        return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride * eight_bytes / 8 % 16 == 0;
      };
      table.entry[n] = {p,
                        blocks,
                        columns,
                        reinterpret_cast<uintptr_t>(p.out) % 16 == 0 && p.out_row % 4 == 0,
                        on_vectors(p.in.g, p.in.g_sample),
                        on_vectors(p.in.a, p.in.a_sample)};
      blocks += columns * static_cast<unsigned>((p.in.o + kRows - 1) / kRows);
    }
    clipped_sum_outer_kernel<<<blocks, kOuterThreads, 0, static_cast<cudaStream_t>(cuda_stream)>>>(
        table, factors, accumulate);
    check_launch("clipped_sum");
  }
}

}  // namespace moonshard::kernels
