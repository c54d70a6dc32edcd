// The last step of ghost_norm: partial sums of a layer and sample, added in double and always in
// the same order, so that two runs give the same bits.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/architecture.h"
#include "kernels/ghost_norm/ghost_norm_launch.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kMostLayers = 64;  // in one launch: their table is a kernel parameter

struct ReduceTable {
  GhostPartials layer[kMostLayers];
};

constexpr int kSums = 5;  // value, magnitude; the diagonal's three
constexpr double kRoundUp = 1.00001;

// A block per (sample, layer).
__global__ void __launch_bounds__(kThreads)
    ghost_norm_reduce_kernel(const __grid_constant__ ReduceTable table, int64_t samples,
                             const GhostResults results) {
  const GhostPartials& layer = table.layer[blockIdx.y];
  const int64_t sample = blockIdx.x;
  const auto* pairs = reinterpret_cast<const float2*>(layer.pairs) + sample * layer.per_sample;
  double sum[kSums] = {};
  for (int64_t i = threadIdx.x; i < layer.per_sample; i += kThreads) {
    const float2 pair = pairs[i];
    sum[0] += pair.x;
    sum[1] += pair.y;
  }
  if (layer.diagonals != nullptr) {
    const GhostDiagonal* parts = layer.diagonals + sample * layer.diagonals_per_sample;
    for (int64_t i = threadIdx.x; i < layer.diagonals_per_sample; i += kThreads) {
      const GhostDiagonal part = parts[i];
      sum[2] += part.products;
      sum[3] += part.a;
      sum[4] += part.g;
    }
  }
  __shared__ double of_warp[kThreads / 32][kSums];
#pragma unroll
  for (int n = 0; n < kSums; ++n) {
    for (int lanes = 16; lanes > 0; lanes /= 2)
      sum[n] += __shfl_xor_sync(0xffffffffu, sum[n], lanes);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32][n] = sum[n];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) {
#pragma unroll
    for (int n = 0; n < kSums; ++n) sum[n] += of_warp[warp][n];
  }
  const int64_t at = layer.row * samples + sample;
  results.value[at] = layer.gain * sum[0];
  results.magnitude[at] = layer.gain * sum[1];
  if (layer.diagonals == nullptr) return;
  const double counted = static_cast<double>(layer.positions) * layer.gain;
  results.length[at] = sqrt(counted * sum[2]) * kRoundUp;
  results.spread[at] = counted * (sum[3] + sum[4]) * kRoundUp;
}

}  // namespace

void launch_ghost_norm_reduce(const std::vector<GhostPartials>& layers, int64_t samples,
                              const GhostResults& results, void* stream) {
  for (size_t done = 0; done < layers.size(); done += kMostLayers) {
    const size_t count = std::min<size_t>(kMostLayers, layers.size() - done);
    ReduceTable table{};
    std::copy_n(layers.begin() + static_cast<int64_t>(done), count, table.layer);
    const dim3 grid(static_cast<unsigned>(samples), static_cast<unsigned>(count));
    ghost_norm_reduce_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        table, samples, results);
  }
  check_launch("ghost_norm_reduce");
}

}  // namespace moonshard::kernels
