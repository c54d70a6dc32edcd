// The second stage of sums over a sample's tokens: blocks have summed parts ("chunks") of them, in
// float32; here the parts are added up, in a fixed order and without atomics.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace moonshard::kernels {

inline constexpr int kChunkSumColumns = 32, kChunkSumLanes = 16;

/// Chunk c of sample s begins at s * sample_stride + c * width. Block: kChunkSumColumns x
/// kChunkSumLanes threads.
template <int kUnused = 0>
__global__ void __launch_bounds__(kChunkSumColumns* kChunkSumLanes)
    chunk_sums_kernel(const float* chunk_rows, float* rows, int64_t samples, int chunks,
                      int width) {
  __shared__ float lane_sums[kChunkSumLanes][kChunkSumColumns];
  const int blocks_of_row = (width + kChunkSumColumns - 1) / kChunkSumColumns;
  const int64_t sample = blockIdx.x / blocks_of_row;
  const int column = static_cast<int>(blockIdx.x % blocks_of_row) * kChunkSumColumns + threadIdx.x;
  float sum = 0;
  if (column < width) {
    const float* from = chunk_rows + sample * chunks * width + column;
#pragma unroll 8
    for (int chunk = threadIdx.y; chunk < chunks; chunk += kChunkSumLanes)
      sum += from[static_cast<int64_t>(chunk) * width];
  }
  lane_sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  for (int lane = 1; lane < kChunkSumLanes; ++lane) sum += lane_sums[lane][threadIdx.x];
  rows[sample * width + column] = sum;
}

/// chunk_rows [samples, chunks, width] -> rows [samples, width].
inline void launch_chunk_sums(const float* chunk_rows, float* rows, int64_t samples, int chunks,
                              int width, cudaStream_t stream) {
  const int64_t blocks = samples * ((width + kChunkSumColumns - 1) / kChunkSumColumns);
  chunk_sums_kernel<>
      <<<static_cast<unsigned>(blocks), dim3(kChunkSumColumns, kChunkSumLanes), 0, stream>>>(
          chunk_rows, rows, samples, chunks, width);
}

}  // namespace moonshard::kernels
