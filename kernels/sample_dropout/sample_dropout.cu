// One thread per pack of eight numbers, whose two words of coins it draws; a row of blocks per
// sample.
#include "kernels/common/architecture.h"
#include "kernels/common/packs.cuh"
#include "kernels/sample_dropout/sample_dropout_launch.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostRows = 65535;  // of a grid

template <class T, int kPack, bool kAdds>
__global__ void __launch_bounds__(kThreads) sample_dropout_kernel(RawDropout p) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (first >= p.numbers) return;
  const auto scale = static_cast<float>(p.scale);
  for (int64_t sample = blockIdx.y; sample < p.samples; sample += gridDim.y) {
    const int64_t at = sample * p.numbers + first;
    const auto x = Pack<T, kPack>::load(static_cast<const T*>(p.from) + at);
    T* to = static_cast<T*>(p.to) + at;
    Pack<T, kPack> y;
    if constexpr (kAdds) y = Pack<T, kPack>::load(to);
    uint64_t coins = dropout_coins(p, sample, first / kCoinsOfWord);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (i == kCoinsOfWord) coins = dropout_coins(p, sample, first / kCoinsOfWord + 1);
      const int which = static_cast<int>((kPack == 1 ? first : i) % kCoinsOfWord);
      // As LibTorch's operations round: the product, then the sum.
      const float kept = rounded_to<T>(__fmul_rn(x[i], coin_stays(p, coins, which) ? scale : 0.0f));
      y.set(i, kAdds ? __fadd_rn(y[i], kept) : kept);
    }
    y.store(to);
  }
}

template <class T, int kPack, bool kAdds>
void launch(const RawDropout& p, cudaStream_t stream) {
  const int64_t packs = (p.numbers + kPack - 1) / kPack;
  const dim3 grid(static_cast<unsigned>((packs + kThreads - 1) / kThreads),
                  static_cast<unsigned>(p.samples < kMostRows ? p.samples : kMostRows));
  sample_dropout_kernel<T, kPack, kAdds><<<grid, kThreads, 0, stream>>>(p);
}

template <class T>
void launch_of(const RawDropout& p, cudaStream_t stream) {
  if (p.numbers % 8 == 0 && is_aligned_16(p.from) && is_aligned_16(p.to)) {
    (p.adds ? launch<T, 8, true> : launch<T, 8, false>)(p, stream);
  } else {
    (p.adds ? launch<T, 1, true> : launch<T, 1, false>)(p, stream);
  }
}

}  // namespace

void launch_sample_dropout(const RawDropout& dropout, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (dropout.format == NumberFormat::Float32) {
    launch_of<float>(dropout, on);
  } else {
    launch_of<__nv_bfloat16>(dropout, on);
  }
  check_launch("sample_dropout");
}

}  // namespace moonshard::kernels
