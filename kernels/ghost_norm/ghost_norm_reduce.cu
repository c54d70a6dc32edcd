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

__device__ double2 warp_sum(double2 sum) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, lanes);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, lanes);
  }
  return sum;
}

// A block per (sample, layer).
__global__ void __launch_bounds__(kThreads)
    ghost_norm_reduce_kernel(const __grid_constant__ ReduceTable table, int64_t samples,
                             double* value, double* magnitude) {
  const GhostPartials& layer = table.layer[blockIdx.y];
  const auto* pairs =
      reinterpret_cast<const float2*>(layer.pairs) + int64_t{blockIdx.x} * layer.per_sample;
  double2 sum{0, 0};
  for (int64_t i = threadIdx.x; i < layer.per_sample; i += kThreads) {
    const float2 pair = pairs[i];
    sum.x += pair.x;
    sum.y += pair.y;
  }
  __shared__ double2 of_warp[kThreads / 32];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double2 total = of_warp[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) {
    total.x += of_warp[warp].x;
    total.y += of_warp[warp].y;
  }
  value[layer.row * samples + blockIdx.x] = layer.gain * total.x;
  magnitude[layer.row * samples + blockIdx.x] = layer.gain * total.y;
}

}  // namespace

void launch_ghost_norm_reduce(const std::vector<GhostPartials>& layers, int64_t samples,
                              double* value, double* magnitude, void* stream) {
  for (size_t done = 0; done < layers.size(); done += kMostLayers) {
    const size_t count = std::min<size_t>(kMostLayers, layers.size() - done);
    ReduceTable table{};
    std::copy_n(layers.begin() + static_cast<int64_t>(done), count, table.layer);
    const dim3 grid(static_cast<unsigned>(samples), static_cast<unsigned>(count));
    ghost_norm_reduce_kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        table, samples, value, magnitude);
  }
  check_launch("ghost_norm_reduce");
}

}  // namespace moonshard::kernels
