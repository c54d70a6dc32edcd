// One thread per pack of eight elements; the tail is done element by element by the first threads.
#include "kernels/common/architecture.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/packs.cuh"
#include "kernels/common/sigmoid_gates.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;

template <class T, int kPack>
__device__ __forceinline__ void forward_pack(const T* from, T* to) {
  const auto x = Pack<T, kPack>::load(from);
  Pack<T, kPack> y;
#pragma unroll
  for (int i = 0; i < kPack; ++i) y.set(i, gate_of<T, GeluGate>(x[i]).value);
  y.store(to);
}

template <class T, int kPack>
__device__ __forceinline__ void backward_pack(const T* g, const T* from, T* to) {
  const auto out = Pack<T, kPack>::load(g), x = Pack<T, kPack>::load(from);
  Pack<T, kPack> gradient;
#pragma unroll
  for (int i = 0; i < kPack; ++i) gradient.set(i, out[i] * gate_of<T, GeluGate>(x[i]).slope);
  gradient.store(to);
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    gelu_forward_kernel(const T* x, T* result, int64_t count) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packs = count / kPack, left = packs * kPack + thread;
  if (thread < packs) forward_pack<T, kPack>(x + thread * kPack, result + thread * kPack);
  if (left < count) forward_pack<T, 1>(x + left, result + left);
}

// No __restrict__: the result may be g. A thread writes only where it alone has read.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    gelu_backward_kernel(const T* g, const T* x, T* result, int64_t count) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packs = count / kPack, left = packs * kPack + thread;
  if (thread < packs) {
    const int64_t i = thread * kPack;
    backward_pack<T, kPack>(g + i, x + i, result + i);
  }
  if (left < count) backward_pack<T, 1>(g + left, x + left, result + left);
}

unsigned grid_of(int64_t count, int pack) {
  const int64_t packs = count / pack, left = count - packs * pack;
  const int64_t threads = packs > left ? packs : left;
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T, int kPack>
void forward(const void* x, void* result, int64_t count, cudaStream_t stream) {
  gelu_forward_kernel<T, kPack><<<grid_of(count, kPack), kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(result), count);
}

template <class T, int kPack>
void backward(const void* g, const void* x, void* result, int64_t count, cudaStream_t stream) {
  gelu_backward_kernel<T, kPack><<<grid_of(count, kPack), kThreads, 0, stream>>>(
      static_cast<const T*>(g), static_cast<const T*>(x), static_cast<T*>(result), count);
}

}  // namespace

void launch_gelu_forward(const void* x, void* result, int64_t count, NumberFormat format,
                         void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_aligned_16(x) && is_aligned_16(result);
  if (format == NumberFormat::Float32) {
    (wide ? forward<float, 8> : forward<float, 1>)(x, result, count, on);
  } else {
    (wide ? forward<__nv_bfloat16, 8> : forward<__nv_bfloat16, 1>)(x, result, count, on);
  }
  check_launch("gelu_forward");
}

void launch_gelu_backward(const void* g, const void* x, void* x_gradient, int64_t count,
                          NumberFormat format, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_aligned_16(g) && is_aligned_16(x) && is_aligned_16(x_gradient);
  if (format == NumberFormat::Float32) {
    (wide ? backward<float, 8> : backward<float, 1>)(g, x, x_gradient, count, on);
  } else {
    (wide ? backward<__nv_bfloat16, 8> : backward<__nv_bfloat16, 1>)(g, x, x_gradient, count, on);
  }
  check_launch("gelu_backward");
}

}  // namespace moonshard::kernels
