// A block per row, which reads it once for every bit of the border: a batch's rows stay in the L2
// cache, so that 31 readings cost less than one sort.
#include "kernels/common/architecture.h"
#include "kernels/common/number_format.h"
#include "kernels/nucleus/nucleus_launch.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBits = 30;

// The same on all threads.
__device__ __forceinline__ long long block_sum(long long value) {
  __shared__ long long sums[kWarps];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();  // of the call before
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  long long sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp];
  return sum;
}

// Sum of this thread's numbers that are at least `least`.
template <bool kWide>
__device__ __forceinline__ long long sum_from(const int32_t* row, int64_t width, int32_t least) {
  long long sum = 0;
  if constexpr (kWide) {
    const int4* packs = reinterpret_cast<const int4*>(row);
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < width / 4; i += kThreads) {
      const int4 pack = packs[i];
      for (const int32_t part : {pack.x, pack.y, pack.z, pack.w}) sum += part >= least ? part : 0;
    }
  } else {
    for (int64_t i = threadIdx.x; i < width; i += kThreads) sum += row[i] >= least ? row[i] : 0;
  }
  return sum;
}

template <bool kWide>
__global__ void __launch_bounds__(kThreads)
    nucleus_border_kernel(const int32_t* parts, int64_t width, double share, int32_t* borders) {
  const int32_t* row = parts + blockIdx.x * width;
  const long long all = block_sum(sum_from<kWide>(row, width, 0));
  const auto wanted = static_cast<long long>(ceil(static_cast<double>(all) * share));
  int32_t border = 0;
  for (int bit = kBits; bit >= 0; --bit) {
    const int32_t raised = border + (1 << bit);
    if (block_sum(sum_from<kWide>(row, width, raised)) >= wanted) border = raised;
  }
  if (threadIdx.x == 0) borders[blockIdx.x] = border;
}

}  // namespace

void launch_nucleus_border(const int32_t* parts, int64_t rows, int64_t width, double share,
                           int32_t* borders, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = width % 4 == 0 && is_aligned_16(parts);
  (wide ? nucleus_border_kernel<true>
        : nucleus_border_kernel<false>)<<<static_cast<unsigned>(rows), kThreads, 0, on>>>(
      parts, width, share, borders);
  check_launch("nucleus_border");
}

}  // namespace moonshard::kernels
