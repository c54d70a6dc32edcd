// Rows of numbers in pieces of 16 bytes, and sums over a block: what the fused elementwise kernels
// share. A pack has 8 numbers, or 1 where a width or an address does not allow 16-byte accesses.
// Arithmetic is in float32; a number is rounded to its dtype where it is stored.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

template <class T, int kPack>
struct alignas(kPack == 1 ? sizeof(T) : 16) Pack {
  T number[kPack];

  __device__ __forceinline__ static Pack load(const T* from) {
    return *reinterpret_cast<const Pack*>(from);
  }
  __device__ __forceinline__ void store(T* to) const { *reinterpret_cast<Pack*>(to) = *this; }
  __device__ __forceinline__ float operator[](int i) const { return static_cast<float>(number[i]); }
  __device__ __forceinline__ void set(int i, float value) { number[i] = static_cast<T>(value); }
};

/// The value as the dtype keeps it.
template <class T>
__device__ __forceinline__ float rounded_to(float value) {
  return static_cast<float>(static_cast<T>(value));
}

/// 1 / (1 + exp(-x)). In bfloat16 by the fast instructions, whose error of a few float32 units
/// vanishes in the rounding; precise otherwise. exp may overflow to infinity: the result is then 0.
template <class T>
__device__ __forceinline__ float sigmoid_of(float x) {
  if constexpr (sizeof(T) == 2) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
  } else {
    return 1.0f / (1.0f + expf(-x));
  }
}

/// Sum over the block's threads, the same on all of them and in a fixed order. Two calls in a row
/// take different `parity` (0, 1): then one barrier in each is enough.
__device__ __forceinline__ float block_sum(float value, int parity = 0) {
  __shared__ float warp_sums[2][32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  const int warps = (static_cast<int>(blockDim.x) + 31) / 32;
  if (warps == 1) return value;
  if (threadIdx.x % 32 == 0) warp_sums[parity][threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < warps; ++warp) sum += warp_sums[parity][warp];
  return sum;
}

/// A type as a value, for lambdas that launch one of several instantiations.
template <class T>
struct TypeTag {
  using type = T;
};

/// Calls launch(TypeTag<rows>, TypeTag<weight>) for the dtypes of a norm's pass: the weight is of
/// the rows' dtype, or float32.
template <class Pass, class Launch>
void with_formats(const Pass& p, const Launch& launch) {
  if (p.format == NumberFormat::Float32) {
    launch(TypeTag<float>(), TypeTag<float>());
  } else if (p.weight_format == NumberFormat::Float32) {
    launch(TypeTag<__nv_bfloat16>(), TypeTag<float>());
  } else {
    launch(TypeTag<__nv_bfloat16>(), TypeTag<__nv_bfloat16>());
  }
}

}  // namespace moonshard::kernels
