// One thread per two neighbouring elements of all states, whose coins are made once.
#include "kernels/coin_rounding/coin_rounding_launch.h"
#include "kernels/common/architecture.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) coin_rounding_kernel(RawRounding p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 2;
  if (i >= p.count) return;
  const uint64_t first = mixed_word(p.origin + static_cast<uint64_t>(i) * kMixStride);
  const bool has_second = i + 1 < p.count;
  const uint64_t second = mixed_word(p.origin + static_cast<uint64_t>(i + 1) * kMixStride);
#pragma unroll
  for (int k = 0; k < RawRounding::kMostStates; ++k) {
    if (k >= p.states) break;
    p.to[k][i] = coin_rounded(p.from[k][i], first >> (16 * k));
    if (has_second) p.to[k][i + 1] = coin_rounded(p.from[k][i + 1], second >> (16 * k));
  }
}

}  // namespace

void launch_coin_rounding(const RawRounding& rounding, void* stream) {
  const int64_t threads = (rounding.count + 1) / 2;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  coin_rounding_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(rounding);
  check_launch("coin_rounding");
}

}  // namespace moonshard::kernels
