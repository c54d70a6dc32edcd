// Sums over runs of equal ids in a sorted list. A block takes 32 sorted positions and 512 columns,
// and finishes every run that starts among its positions, however far it reaches: each run's sum is
// made by one block, in order. Memory-bound: each row of g is read once.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/architecture.h"
#include "kernels/embedding_norm/embedding_norm_launch.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kPositions = 32;  // per block
constexpr int kBatch = 8;       // rows in flight per thread
constexpr int kWide = 4;        // columns per thread, where alignment allows

// `columns` neighbouring numbers as float32, in one load.
template <int columns, class T>
__device__ void load_columns(const T* from, float (&to)[columns]) {
  static_assert(columns == 1 || columns == kWide);
  if constexpr (columns == 1) {
    to[0] = static_cast<float>(*from);
  } else if constexpr (sizeof(T) == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  } else {
    const uint2 four = *reinterpret_cast<const uint2*>(from);
    to[0] = __uint_as_float(four.x << 16);  // a bfloat16 is the upper half of a float32
    to[1] = __uint_as_float(four.x & 0xffff0000u);
    to[2] = __uint_as_float(four.y << 16);
    to[3] = __uint_as_float(four.y & 0xffff0000u);
  }
}

template <int columns>
__device__ void store_columns(float* to, const float (&from)[columns]) {
  if constexpr (columns == 1) {
    *to = from[0];
  } else {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  }
}

// First place in (from, to) whose id is not that of `from`; `to` if there is none.
__device__ int64_t end_of_run(const int64_t* ids, int64_t from, int64_t to) {
  const int64_t id = ids[from];
  int64_t inside = from, outside = to;  // ids[inside] == id, ids[outside] != id or past the end
  while (outside - inside > 1) {
    const int64_t middle = inside + (outside - inside) / 2;
    if (ids[middle] == id) {
      inside = middle;
    } else {
      outside = middle;
    }
  }
  return outside;
}

// Adds up the runs that start in this block's part of the sorted ids. load(p, id, row) reads the
// row of sorted place p and returns its weight; finish(id, sum) takes a run's sum.
template <int columns, class Load, class Finish>
__device__ void for_each_run(const int64_t* ids, int64_t count, int64_t part, const Load& load,
                             const Finish& finish) {
  const int64_t begin = part * kPositions;
  const int64_t end = begin + kPositions < count ? begin + kPositions : count;
  int64_t p = begin;
  if (begin > 0 && ids[begin] == ids[begin - 1]) p = end_of_run(ids, begin, end);
  if (p == end) return;  // all of one run, which started in an earlier part
  const int64_t stop = end < count && ids[end] == ids[end - 1] ? end_of_run(ids, end, count) : end;
  int64_t id = ids[p];
  double sum[columns] = {};
  for (; p < stop; p += kBatch) {
    float row[kBatch][columns];
    double weight[kBatch];
    int64_t id_of[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {  // all loads first, so that they are in flight together
      weight[u] = 0;
      if (p + u < stop) {
        id_of[u] = ids[p + u];
        weight[u] = load(p + u, id_of[u], row[u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      if (p + u >= stop) break;
      if (id_of[u] != id) {
        finish(id, sum);
        id = id_of[u];
        for (int c = 0; c < columns; ++c) sum[c] = 0;
      }
      if (weight[u] != 0) {  // what is dropped may be NaN
        for (int c = 0; c < columns; ++c) sum[c] += weight[u] * static_cast<double>(row[u][c]);
      }
    }
  }
  finish(id, sum);
}

__device__ double block_sum(double x) {
  __shared__ double of_warp[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
  for (const double part : of_warp) total += part;
  return total;
}

// Grid: parts of a sample's positions, parts of the columns, samples.
template <class T, int columns>
__global__ void __launch_bounds__(kThreads)
    embedding_norm_runs_kernel(const int64_t* ids, const int64_t* order, EmbeddingRows g,
                               int64_t padding_id, double* partials) {
  const int64_t sample = blockIdx.z;
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * columns;
  const T* rows = static_cast<const T*>(g.data) + sample * g.sample_stride + column;
  ids += sample * g.tokens;
  order += sample * g.tokens;
  double squares = 0;
  if (column < g.width) {
    for_each_run<columns>(
        ids, g.tokens, blockIdx.x,
        [&](int64_t p, int64_t id, float(&row)[columns]) {
          if (id == padding_id) return 0.0;
          load_columns<columns>(rows + order[p] * g.token_stride, row);
          return 1.0;
        },
        [&](int64_t, const double(&sum)[columns]) {
          for (int c = 0; c < columns; ++c) squares += sum[c] * sum[c];
        });
  }
  squares = block_sum(squares);
  if (threadIdx.x == 0)
    partials[(sample * gridDim.x + blockIdx.x) * gridDim.y + blockIdx.y] = squares;
}

// A block per sample.
__global__ void __launch_bounds__(kThreads)
    embedding_norm_reduce_kernel(const double* partials, int64_t per_sample, double* squares) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < per_sample; i += kThreads)
    sum += partials[int64_t{blockIdx.x} * per_sample + i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) squares[blockIdx.x] = sum;
}

// Grid: parts of all positions, parts of the columns.
template <class T, int columns>
__global__ void __launch_bounds__(kThreads)
    embedding_sum_runs_kernel(const int64_t* ids, const int64_t* order, EmbeddingRows g,
                              const double* factors, int64_t padding_id, float* out,
                              int64_t out_stride) {
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * columns;
  if (column >= g.width) return;
  const T* rows = static_cast<const T*>(g.data) + column;
  for_each_run<columns>(
      ids, g.samples * g.tokens, blockIdx.x,
      [&](int64_t p, int64_t id, float(&row)[columns]) {
        if (id == padding_id) return 0.0;
        // 32 bits (the caller counts): a 64-bit division would cost as much as the row
        const auto place = static_cast<uint32_t>(order[p]);
        const uint32_t sample = place / static_cast<uint32_t>(g.tokens);
        const double factor = factors == nullptr ? 1.0 : factors[sample];
        if (factor != 0) {
          const int64_t token = place - sample * static_cast<uint32_t>(g.tokens);
          load_columns<columns>(rows + sample * g.sample_stride + token * g.token_stride, row);
        }
        return factor;
      },
      [&](int64_t id, const double(&sum)[columns]) {
        if (id == padding_id) return;
        float* to = out + id * out_stride + column;
        float total[columns];
        load_columns<columns>(to, total);
        for (int c = 0; c < columns; ++c)
          total[c] = static_cast<float>(static_cast<double>(total[c]) + sum[c]);
        store_columns(to, total);
      });
}

bool can_be_wide(const EmbeddingRows& g) {
  const int64_t bytes = kWide * (g.is_bfloat16 ? 2 : 4);
  return g.width % kWide == 0 && (g.tokens == 1 || g.token_stride % kWide == 0) &&
         (g.samples == 1 || g.sample_stride % kWide == 0) &&
         reinterpret_cast<uintptr_t>(g.data) % static_cast<uintptr_t>(bytes) == 0;
}

unsigned parts(int64_t count, int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// f.operator()<T, columns>() for g's dtype.
template <class Function>
void with_format(const EmbeddingRows& g, bool wide, const Function& f) {
  if (g.is_bfloat16 && wide) {
    f.template operator()<__nv_bfloat16, kWide>();
  } else if (g.is_bfloat16) {
    f.template operator()<__nv_bfloat16, 1>();
  } else if (wide) {
    f.template operator()<float, kWide>();
  } else {
    f.template operator()<float, 1>();
  }
}

}  // namespace

int64_t embedding_norm_workspace_bytes(const EmbeddingRows& g) {
  return g.samples * parts(g.tokens, kPositions) * parts(g.width, kThreads) *
         static_cast<int64_t>(sizeof(double));
}

void launch_embedding_norm(const int64_t* ids, const int64_t* order, const EmbeddingRows& g,
                           int64_t padding_id, double* squares, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  auto* partials = static_cast<double*>(workspace);
  // Samples are a grid's last dimension, which ends at 65,535.
  constexpr int64_t kMostSamples = 65535;
  with_format(g, can_be_wide(g), [&]<class T, int columns>() {
    const dim3 grid(parts(g.tokens, kPositions), parts(g.width, kThreads * columns));
    const int64_t per_sample = int64_t{grid.x} * grid.y;
    for (int64_t b = 0; b < g.samples; b += kMostSamples) {
      const int64_t count = std::min(kMostSamples, g.samples - b);
      EmbeddingRows some = g;
      some.data = static_cast<const T*>(g.data) + b * g.sample_stride;
      some.samples = count;
      embedding_norm_runs_kernel<T, columns>
          <<<dim3(grid.x, grid.y, static_cast<unsigned>(count)), kThreads, 0, on>>>(
              ids + b * g.tokens, order + b * g.tokens, some, padding_id,
              partials + b * per_sample);
    }
    embedding_norm_reduce_kernel<<<static_cast<unsigned>(g.samples), kThreads, 0, on>>>(
        partials, per_sample, squares);
  });
  check_launch("embedding_norm");
}

void launch_embedding_sum(const int64_t* ids, const int64_t* order, const EmbeddingRows& g,
                          const double* factors, int64_t padding_id, float* out, int64_t out_stride,
                          void* stream) {
  const bool wide = can_be_wide(g) && out_stride % kWide == 0 &&
                    reinterpret_cast<uintptr_t>(out) % (kWide * sizeof(float)) == 0;
  with_format(g, wide, [&]<class T, int columns>() {
    const dim3 grid(parts(g.samples * g.tokens, kPositions), parts(g.width, kThreads * columns));
    embedding_sum_runs_kernel<T, columns><<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        ids, order, g, factors, padding_id, out, out_stride);
  });
  check_launch("embedding_sum");
}

}  // namespace moonshard::kernels
