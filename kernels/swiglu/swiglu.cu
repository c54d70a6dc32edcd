// One thread per pack of eight elements: memory-bound, so no more than that is needed. The tail is
// done element by element by the first threads.
#include "kernels/common/architecture.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/packs.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;

template <class T, int kPack>
__device__ __forceinline__ void forward_pack(const T* gate, const T* up, T* result) {
  const auto a = Pack<T, kPack>::load(gate), b = Pack<T, kPack>::load(up);
  Pack<T, kPack> product;
#pragma unroll
  for (int i = 0; i < kPack; ++i) product.set(i, rounded_to<T>(a[i] * sigmoid_of<T>(a[i])) * b[i]);
  product.store(result);
}

// silu'(x) = s (1 + x (1 - s)), s = sigmoid(x).
template <class T, int kPack>
__device__ __forceinline__ void backward_pack(const T* g, const T* gate, const T* up,
                                              T* gate_gradient, T* up_gradient) {
  const auto out = Pack<T, kPack>::load(g), a = Pack<T, kPack>::load(gate),
             b = Pack<T, kPack>::load(up);
  Pack<T, kPack> to_gate, to_up;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float x = a[i], s = sigmoid_of<T>(x);
    to_up.set(i, out[i] * rounded_to<T>(x * s));
    to_gate.set(i, out[i] * b[i] * (s * (1.0f + x * (1.0f - s))));
  }
  to_gate.store(gate_gradient);
  to_up.store(up_gradient);
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(const T* gate, const T* up, T* result, int64_t count) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packs = count / kPack;
  if (thread < packs) {
    const int64_t i = thread * kPack;
    forward_pack<T, kPack>(gate + i, up + i, result + i);
  }
  const int64_t left = packs * kPack + thread;
  if (left < count) forward_pack<T, 1>(gate + left, up + left, result + left);
}

// No __restrict__: up_gradient may be g. A thread writes only where it alone has read.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* g, const T* gate, const T* up, T* gate_gradient, T* up_gradient,
                           int64_t count) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packs = count / kPack;
  if (thread < packs) {
    const int64_t i = thread * kPack;
    backward_pack<T, kPack>(g + i, gate + i, up + i, gate_gradient + i, up_gradient + i);
  }
  const int64_t left = packs * kPack + thread;
  if (left < count) {
    backward_pack<T, 1>(g + left, gate + left, up + left, gate_gradient + left, up_gradient + left);
  }
}

template <class T, int kPack>
unsigned grid_of(int64_t count) {
  const int64_t packs = count / kPack, left = count - packs * kPack;
  const int64_t threads = packs > left ? packs : left;
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T, int kPack>
void forward(const void* gate, const void* up, void* result, int64_t count, cudaStream_t stream) {
  swiglu_forward_kernel<T, kPack><<<grid_of<T, kPack>(count), kThreads, 0, stream>>>(
      static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(result), count);
}

template <class T, int kPack>
void backward(const void* g, const void* gate, const void* up, void* gate_gradient,
              void* up_gradient, int64_t count, cudaStream_t stream) {
  swiglu_backward_kernel<T, kPack><<<grid_of<T, kPack>(count), kThreads, 0, stream>>>(
      static_cast<const T*>(g), static_cast<const T*>(gate), static_cast<const T*>(up),
      static_cast<T*>(gate_gradient), static_cast<T*>(up_gradient), count);
}

}  // namespace

void launch_swiglu_forward(const void* gate, const void* up, void* result, int64_t count,
                           NumberFormat format, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_aligned_16(gate) && is_aligned_16(up) && is_aligned_16(result);
  if (format == NumberFormat::Float32) {
    (wide ? forward<float, 8> : forward<float, 1>)(gate, up, result, count, on);
  } else {
    (wide ? forward<__nv_bfloat16, 8> : forward<__nv_bfloat16, 1>)(gate, up, result, count, on);
  }
  check_launch("swiglu_forward");
}

void launch_swiglu_backward(const void* g, const void* gate, const void* up, void* gate_gradient,
                            void* up_gradient, int64_t count, NumberFormat format, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_aligned_16(g) && is_aligned_16(gate) && is_aligned_16(up) &&
                    is_aligned_16(gate_gradient) && is_aligned_16(up_gradient);
  if (format == NumberFormat::Float32) {
    (wide ? backward<float, 8> : backward<float, 1>)(g, gate, up, gate_gradient, up_gradient, count,
                                                     on);
  } else {
    (wide ? backward<__nv_bfloat16, 8> : backward<__nv_bfloat16, 1>)(g, gate, up, gate_gradient,
                                                                     up_gradient, count, on);
  }
  check_launch("swiglu_backward");
}

}  // namespace moonshard::kernels
