// Each thread has several 16-byte loads in flight before it stores: that, not arithmetic, is what a
// copy near memory speed needs.
#include "kernels/common/architecture.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/packs.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256, kPacks = 4;

// Without a change of dtype the bits are copied.
template <class To, class From>
__device__ __forceinline__ To converted(From number) {
  if constexpr (sizeof(To) == sizeof(From)) {
    return number;
  } else {
    return static_cast<To>(number);
  }
}

template <class To, class From, int kPack>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(To* __restrict__ to, const From* __restrict__ from, int64_t count) {
  const int64_t packs = count / kPack;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kPacks + threadIdx.x;
  Pack<From, kPack> held[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int64_t pack = first + j * kThreads;
    if (pack < packs) held[j] = Pack<From, kPack>::load(from + pack * kPack);
  }
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int64_t pack = first + j * kThreads;
    if (pack >= packs) continue;
    Pack<To, kPack> rounded;
#pragma unroll
    for (int i = 0; i < kPack; ++i) rounded.number[i] = converted<To>(held[j].number[i]);
    rounded.store(to + pack * kPack);
  }
  // The tail: fewer elements than a pack.
  const int64_t left = packs * kPack + threadIdx.x;
  if (blockIdx.x == 0 && left < count) to[left] = converted<To>(from[left]);
}

template <class To, class From, int kPack>
void launch(void* to, const void* from, int64_t count, cudaStream_t stream) {
  const int64_t of_block = int64_t{kThreads} * kPacks * kPack;
  const int64_t blocks = (count + of_block - 1) / of_block;
  cast_kernel<To, From, kPack><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<To*>(to), static_cast<const From*>(from), count);
}

template <class To, class From>
void launch(void* to, const void* from, int64_t count, cudaStream_t stream) {
  if (is_aligned_16(to) && is_aligned_16(from)) {
    launch<To, From, 8>(to, from, count, stream);
  } else {
    launch<To, From, 1>(to, from, count, stream);
  }
}

}  // namespace

void launch_cast(void* to, NumberFormat to_format, const void* from, NumberFormat from_format,
                 int64_t count, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  if (to_format == NumberFormat::Float32) {
    launch<float, float>(to, from, count, on);
  } else if (from_format == NumberFormat::Float32) {
    launch<__nv_bfloat16, float>(to, from, count, on);
  } else {
    launch<__nv_bfloat16, __nv_bfloat16>(to, from, count, on);
  }
  check_launch("cast");
}

}  // namespace moonshard::kernels
