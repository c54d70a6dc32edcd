// Two passes. Lengths of rows: a warp per row, 16 bytes per lane and load, at memory speed. Then
// one block per problem and sample adds the products in double, in a fixed order.
//
// Squares are added in float32, in short runs that go into a double. Rows whose squares leave the
// range of float32 are read again in double, which is rare: a gradient of 1e-20 must not get a
// length of 0. Rows of samples of one position are few: they are added in double at once, and the
// product of two lengths is the norm itself.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/common/architecture.h"
#include "kernels/position_lengths/bounded_square.h"
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

struct PairEntry {
  int64_t a, g;  // first rows in the scratch memory
  int64_t positions;
};
struct PairTable {
  PairEntry pair[kMostLengthPairs];
};
struct TermTable {
  SquareTerm term[kMostLengthPairs];
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

// Squares of a row by its warp, in short runs of type Sum. kVectors: rows start at 16 bytes; the
// last few elements are taken one by one.
template <class T, bool kVectors, class Sum>
__device__ __forceinline__ double row_squares(const T* row, int64_t width, int lane,
                                              bool& all_zero) {
  constexpr int kCount = kVectors ? Vector<T>::kCount : 1;
  constexpr int kRun = 4;  // loads in flight
  constexpr int kRunsInFloat = 4;
  const int64_t vectors = width / kCount;
  double total = 0;
  uint32_t bits = 0;
  for (int64_t base = lane; base < vectors; base += 32 * kRun * kRunsInFloat) {
    Sum sum[4] = {0, 0, 0, 0};
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
          const Sum x = as_float(loaded[n].value[e]);
          sum[(n + e) % 4] = fma(x, x, sum[(n + e) % 4]);
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

template <class T, class Sum>
__device__ __forceinline__ double squares_of_row(const T* row, int64_t width, bool vectors,
                                                 int lane, bool& all_zero) {
  return vectors ? row_squares<T, true, Sum>(row, width, lane, all_zero)
                 : row_squares<T, false, Sum>(row, width, lane, all_zero);
}

template <class T>
__device__ __forceinline__ double row_length(const T* row, int64_t width, bool vectors, bool exact,
                                             int lane) {
  bool all_zero;
  if (exact) return sqrt(squares_of_row<T, double>(row, width, vectors, lane, all_zero));
  double squares = squares_of_row<T, float>(row, width, vectors, lane, all_zero);
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
  const bool exact = rows.positions == 1;
  const double length = rows.bfloat16
                            ? row_length(static_cast<const __nv_bfloat16*>(rows.data) + offset,
                                         rows.width, set.vectors, exact, lane)
                            : row_length(static_cast<const float*>(rows.data) + offset, rows.width,
                                         set.vectors, exact, lane);
  if (lane == 0) lengths[set.first_row + row] = length;
}

struct PairSums {
  double products, a, g;  // of |a_t| |g_t|, |a_t| and |g_t|
};

// The sums of a block's pair and sample; whole in thread 0.
__device__ PairSums pair_sums(const PairEntry& pair, const double* rows) {
  __shared__ double sums[3][kThreads / 32];
  const int64_t sample = blockIdx.x;
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
  }
  return {sum, sum_a, sum_g};
}

__global__ void __launch_bounds__(kThreads)
    position_lengths_add_kernel(const __grid_constant__ PairTable table, const double* rows,
                                double* lengths, double* spreads) {
  const PairSums sum = pair_sums(table.pair[blockIdx.y], rows);
  if (threadIdx.x != 0) return;
  const int64_t at = int64_t{blockIdx.y} * gridDim.x + blockIdx.x;
  lengths[at] = sum.products * kRoundUp;
  if (spreads != nullptr) spreads[at] = (sum.a * sum.a + sum.g * sum.g) * kRoundUp;
}

__global__ void __launch_bounds__(kThreads)
    bounded_squares_kernel(const __grid_constant__ PairTable table,
                           const __grid_constant__ TermTable terms, const double* rows,
                           double* squares) {
  const PairSums sum = pair_sums(table.pair[blockIdx.y], rows);
  if (threadIdx.x != 0) return;
  const int64_t sample = blockIdx.x;
  const SquareTerm& term = terms.term[blockIdx.y];
  double& square = squares[int64_t{blockIdx.y} * gridDim.x + sample];
  if (term.source == NormSource::OnePosition) {
    square = sum.products * sum.products;
    return;
  }
  const bool known = term.length != nullptr;
  const double length = known ? term.length[sample] : sum.products * kRoundUp;
  const double spread = known ? term.spread[sample] : (sum.a * sum.a + sum.g * sum.g) * kRoundUp;
  square =
      bounded_square(term, term.value[sample],
                     term.source == NormSource::Gram ? term.magnitude[sample] : 0, length, spread);
}

// The first pass; returns where the second finds each pair's rows.
PairTable launch_rows(const LengthRows* rows, int num_rows, const LengthPair* pairs, int num_pairs,
                      double* scratch, cudaStream_t stream) {
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
    if (pairs[n].a == kNoRows) continue;  // no positions
    const RowSet &a = table.set[pairs[n].a], &g = table.set[pairs[n].g];
    sums.pair[n] = {a.first_row, g.first_row, a.rows.positions};
  }
  if (blocks == 0) return sums;
  position_lengths_rows_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(table,
                                                                                       scratch);
  check_launch("position_lengths");
  return sums;
}

dim3 pair_grid(int64_t samples, int num_pairs) {
  return dim3(static_cast<unsigned>(samples), static_cast<unsigned>(num_pairs));
}

}  // namespace

void launch_position_lengths(const LengthRows* rows, int num_rows, const LengthPair* pairs,
                             int num_pairs, double* scratch, double* lengths, double* spreads,
                             void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  const PairTable sums = launch_rows(rows, num_rows, pairs, num_pairs, scratch, stream);
  const dim3 grid = pair_grid(rows[pairs[0].a].samples, num_pairs);
  position_lengths_add_kernel<<<grid, kThreads, 0, stream>>>(sums, scratch, lengths, spreads);
  check_launch("position_lengths");
}

void launch_bounded_squares(const LengthRows* rows, int num_rows, const LengthPair* pairs,
                            const SquareTerm* terms, int num_pairs, int64_t samples,
                            double* scratch, double* squares, void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  const PairTable sums = launch_rows(rows, num_rows, pairs, num_pairs, scratch, stream);
  TermTable table{};
  for (int n = 0; n < num_pairs; ++n) table.term[n] = terms[n];
  const dim3 grid = pair_grid(samples, num_pairs);
  bounded_squares_kernel<<<grid, kThreads, 0, stream>>>(sums, table, scratch, squares);
  check_launch("bounded_squares");
}

}  // namespace moonshard::kernels
