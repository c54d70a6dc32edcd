// Two passes. Lengths of rows: a warp per row, 16 bytes per lane and load, at memory speed. Then
// one block per problem and sample adds the products in double, in a fixed order.
//
// Squares are added in float32, in short runs that go into a double. Rows whose squares leave the
// range of float32 are read again in double, which is rare: a gradient of 1e-20 must not get a
// length of 0.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/common/architecture.h"
#include "kernels/position_lengths/keep_scale.h"
#include "kernels/position_lengths/position_lengths_launch.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / 32;
constexpr double kRoundUp = 1.00001;

struct RowSet {
  LengthRows rows;
  int64_t first_block;  // of the sets before
  int64_t first_row;
  bool vectors;  // 16-byte loads
};

struct RowTable {
  RowSet set[kMostLengthRows];
  int count;
};

struct PairTable {
  struct Entry {
    int64_t a, g;  // first rows in the scratch memory
    int64_t positions;
  } pair[kMostLengthPairs];
};

__device__ __forceinline__ float as_float(float x) {
  return x;
}
__device__ __forceinline__ float as_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
struct Vector {
  static constexpr int kCount = 16 / sizeof(T);
  alignas(16) T value[kCount];
};

__device__ __forceinline__ double warp_sum(double x) {
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// Squares of a row by its warp. kVectors: rows start at 16 bytes; the last few elements are taken
// one by one.
template <class T, bool kVectors>
__device__ __forceinline__ double row_squares(const T* row, int64_t width, int lane,
                                              bool& all_zero) {
  constexpr int kCount = kVectors ? Vector<T>::kCount : 1;
  constexpr int kRun = 4;  // loads in flight
  constexpr int kRunsInFloat = 4;
  const int64_t vectors = width / kCount;
  double total = 0;
  uint32_t bits = 0;
  for (int64_t base = lane; base < vectors; base += 32 * kRun * kRunsInFloat) {
    float sum[4] = {0, 0, 0, 0};
    for (int run = 0; run < kRunsInFloat; ++run) {
      Vector<T> loaded[kRun];
#pragma unroll
      for (int n = 0; n < kRun; ++n) {
        const int64_t at = base + 32 * (run * kRun + n);
        if constexpr (kVectors) {
          uint4 raw = make_uint4(0, 0, 0, 0);
          if (at < vectors) raw = __ldg(reinterpret_cast<const uint4*>(row) + at);
          bits |= raw.x | raw.y | raw.z | raw.w;
          *reinterpret_cast<uint4*>(&loaded[n]) = raw;
        } else {
          loaded[n].value[0] = at < vectors ? row[at] : T(0.0f);
          bits |= as_float(loaded[n].value[0]) != 0.0f;
        }
      }
#pragma unroll
      for (int n = 0; n < kRun; ++n) {
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          const float x = as_float(loaded[n].value[e]);
          sum[(n + e) % 4] = fmaf(x, x, sum[(n + e) % 4]);
        }
      }
    }
    total += static_cast<double>((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
  for (int64_t at = vectors * kCount + lane; at < width; at += 32) {
    const double x = as_float(row[at]);
    total += x * x;
    bits |= x != 0.0;
  }
  all_zero = !__any_sync(0xffffffffu, bits != 0);
  return warp_sum(total);
}

template <class T>
__device__ double row_squares_in_double(const T* row, int64_t width, int lane) {
  double total = 0;
  for (int64_t at = lane; at < width; at += 32) {
    const double x = as_float(row[at]);
    total = fma(x, x, total);
  }
  return warp_sum(total);
}

template <class T>
__device__ __forceinline__ double row_length(const T* row, int64_t width, bool vectors, int lane) {
  bool all_zero;
  double squares = vectors ? row_squares<T, true>(row, width, lane, all_zero)
                           : row_squares<T, false>(row, width, lane, all_zero);
  if (all_zero) return 0;  // padding is common and needs no second look
  // Below: squares may have vanished; above: they may have overflowed. The same in all lanes.
  if (!(squares >= 1e-24 && squares <= 1e36)) squares = row_squares_in_double(row, width, lane);
  return sqrt(squares);
}

__global__ void __launch_bounds__(kThreads)
    position_lengths_rows_kernel(const __grid_constant__ RowTable table, double* lengths) {
  int which = 0;
  while (which + 1 < table.count && blockIdx.x >= table.set[which + 1].first_block) ++which;
  const RowSet& set = table.set[which];
  const LengthRows& rows = set.rows;
  const int lane = threadIdx.x % 32;
  const int64_t row = (blockIdx.x - set.first_block) * kRowsPerBlock + threadIdx.x / 32;
  if (row >= rows.samples * rows.positions) return;
  const int64_t sample = row / rows.positions, position = row - sample * rows.positions;
  const int64_t offset = sample * rows.sample_stride + position * rows.row_stride;
  const double length = rows.bfloat16
                            ? row_length(static_cast<const __nv_bfloat16*>(rows.data) + offset,
                                         rows.width, set.vectors, lane)
                            : row_length(static_cast<const float*>(rows.data) + offset, rows.width,
                                         set.vectors, lane);
  if (lane == 0) lengths[set.first_row + row] = length;
}

__global__ void __launch_bounds__(kThreads)
    position_lengths_add_kernel(const __grid_constant__ PairTable table, const double* rows,
                                double* lengths, double* spreads) {
  __shared__ double sums[3][kThreads / 32];
  const PairTable::Entry& pair = table.pair[blockIdx.y];
  const int64_t sample = blockIdx.x, samples = gridDim.x;
  const double* a = rows + pair.a + sample * pair.positions;
  const double* g = rows + pair.g + sample * pair.positions;
  double sum = 0, sum_a = 0, sum_g = 0;
  for (int64_t at = threadIdx.x; at < pair.positions; at += kThreads) {
    sum += a[at] * g[at];
    sum_a += a[at];
    sum_g += g[at];
  }
  sum = warp_sum(sum);
  sum_a = warp_sum(sum_a);
  sum_g = warp_sum(sum_g);
  if (threadIdx.x % 32 == 0) {
    sums[0][threadIdx.x / 32] = sum;
    sums[1][threadIdx.x / 32] = sum_a;
    sums[2][threadIdx.x / 32] = sum_g;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) {
      sum += sums[0][warp];
      sum_a += sums[1][warp];
      sum_g += sums[2][warp];
    }
    const int64_t at = blockIdx.y * samples + sample;
    lengths[at] = sum * kRoundUp;
    if (spreads != nullptr) spreads[at] = (sum_a * sum_a + sum_g * sum_g) * kRoundUp;
  }
}

__global__ void keep_scales_kernel(const double* lengths, float* scales, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) scales[at] = keep_scale_of(lengths[at]);
}

}  // namespace

void launch_position_lengths(const LengthRows* rows, int num_rows, const LengthPair* pairs,
                             int num_pairs, double* scratch, double* lengths, double* spreads,
                             void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  RowTable table{};
  table.count = num_rows;
  int64_t blocks = 0, all_rows = 0;
  for (int n = 0; n < num_rows; ++n) {
    const int64_t here = rows[n].samples * rows[n].positions;
    const int64_t per_vector = rows[n].bfloat16 ? 8 : 4;
    table.set[n] = {rows[n], blocks, all_rows,
                    reinterpret_cast<uintptr_t>(rows[n].data) % 16 == 0 &&
                        rows[n].row_stride % per_vector == 0 &&
                        rows[n].sample_stride % per_vector == 0};
    blocks += (here + kRowsPerBlock - 1) / kRowsPerBlock;
    all_rows += here;
  }
  PairTable sums{};
  for (int n = 0; n < num_pairs; ++n) {
    const RowSet &a = table.set[pairs[n].a], &g = table.set[pairs[n].g];
    sums.pair[n] = {a.first_row, g.first_row, a.rows.positions};
  }
  position_lengths_rows_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(table,
                                                                                       scratch);
  check_launch("position_lengths");
  const dim3 grid(static_cast<unsigned>(rows[pairs[0].a].samples),
                  static_cast<unsigned>(num_pairs));
  position_lengths_add_kernel<<<grid, kThreads, 0, stream>>>(sums, scratch, lengths, spreads);
  check_launch("position_lengths");
}

void launch_keep_scales(const double* lengths, float* scales, int64_t count, void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  keep_scales_kernel<<<static_cast<unsigned>((count + 127) / 128), 128, 0, stream>>>(lengths,
                                                                                     scales, count);
  check_launch("keep_scales");
}

}  // namespace moonshard::kernels
