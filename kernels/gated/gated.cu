// One thread per pack of eight elements: memory-bound, so no more than that is needed. The tail is
// done element by element by the first threads.
#include "kernels/common/architecture.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/packs.cuh"
#include "kernels/common/sigmoid_gates.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;

template <class T, class Gate, int kPack>
__device__ __forceinline__ void forward_pack(const T* gate, const T* up, T* result) {
  const auto a = Pack<T, kPack>::load(gate), b = Pack<T, kPack>::load(up);
  Pack<T, kPack> product;
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    product.set(i, rounded_to<T>(gate_of<T, Gate>(a[i]).value) * b[i]);
  product.store(result);
}

template <class T>
struct Backward {
  const T *g, *gate, *up;
  T *gate_gradient, *up_gradient;
  T* product;  ///< null: not wanted
};

template <class T, class Gate, int kPack>
__device__ __forceinline__ void backward_pack(const Backward<T>& p, int64_t at) {
  const auto out = Pack<T, kPack>::load(p.g + at), a = Pack<T, kPack>::load(p.gate + at),
             b = Pack<T, kPack>::load(p.up + at);
  Pack<T, kPack> to_gate, to_up, product;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const GateValue opened = gate_of<T, Gate>(a[i]);
    const float value = rounded_to<T>(opened.value);
    to_up.set(i, out[i] * value);
    to_gate.set(i, out[i] * b[i] * opened.slope);
    product.set(i, value * b[i]);
  }
  to_gate.store(p.gate_gradient + at);
  to_up.store(p.up_gradient + at);
  if (p.product != nullptr) product.store(p.product + at);
}

template <class T, class Gate, int kPack>
__global__ void __launch_bounds__(kThreads)
    gated_forward_kernel(const T* gate, const T* up, T* result, int64_t count) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packs = count / kPack;
  if (thread < packs) {
    const int64_t i = thread * kPack;
    forward_pack<T, Gate, kPack>(gate + i, up + i, result + i);
  }
  const int64_t left = packs * kPack + thread;
  if (left < count) forward_pack<T, Gate, 1>(gate + left, up + left, result + left);
}

// No __restrict__: results may lie where g, gate and up do. A thread writes only where it alone has
// read.
template <class T, class Gate, int kPack>
__global__ void __launch_bounds__(kThreads) gated_backward_kernel(Backward<T> p, int64_t count) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t packs = count / kPack;
  if (thread < packs) backward_pack<T, Gate, kPack>(p, thread * kPack);
  const int64_t left = packs * kPack + thread;
  if (left < count) backward_pack<T, Gate, 1>(p, left);
}

template <int kPack>
unsigned grid_of(int64_t count) {
  const int64_t packs = count / kPack, left = count - packs * kPack;
  const int64_t threads = packs > left ? packs : left;
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T, class Gate, int kPack>
void forward(const void* gate, const void* up, void* result, int64_t count, cudaStream_t stream) {
  gated_forward_kernel<T, Gate, kPack><<<grid_of<kPack>(count), kThreads, 0, stream>>>(
      static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(result), count);
}

template <class T, class Gate, int kPack>
void backward(const void* g, const void* gate, const void* up, void* gate_gradient,
              void* up_gradient, void* product, int64_t count, cudaStream_t stream) {
  const Backward<T> p{static_cast<const T*>(g),     static_cast<const T*>(gate),
                      static_cast<const T*>(up),    static_cast<T*>(gate_gradient),
                      static_cast<T*>(up_gradient), static_cast<T*>(product)};
  gated_backward_kernel<T, Gate, kPack><<<grid_of<kPack>(count), kThreads, 0, stream>>>(p, count);
}

// Calls run<T, Gate>() for the format and the function.
template <class Run>
void with_types(GateFunction function, NumberFormat format, const Run& run) {
  const bool silu = function == GateFunction::Silu;
  if (format == NumberFormat::Float32) {
    silu ? run.template operator()<float, SiluGate>() : run.template operator()<float, GeluGate>();
  } else {
    silu ? run.template operator()<__nv_bfloat16, SiluGate>()
         : run.template operator()<__nv_bfloat16, GeluGate>();
  }
}

}  // namespace

void launch_gated_forward(const void* gate, const void* up, void* result, int64_t count,
                          GateFunction function, NumberFormat format, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_aligned_16(gate) && is_aligned_16(up) && is_aligned_16(result);
  with_types(function, format, [&]<class T, class Gate>() {
    (wide ? forward<T, Gate, 8> : forward<T, Gate, 1>)(gate, up, result, count, on);
  });
  check_launch("gated_forward");
}

void launch_gated_backward(const void* g, const void* gate, const void* up, void* gate_gradient,
                           void* up_gradient, void* product, int64_t count, GateFunction function,
                           NumberFormat format, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_aligned_16(g) && is_aligned_16(gate) && is_aligned_16(up) &&
                    is_aligned_16(gate_gradient) && is_aligned_16(up_gradient) &&
                    is_aligned_16(product);
  with_types(function, format, [&]<class T, class Gate>() {
    (wide ? backward<T, Gate, 8> : backward<T, Gate, 1>)(g, gate, up, gate_gradient, up_gradient,
                                                         product, count, on);
  });
  check_launch("gated_backward");
}

}  // namespace moonshard::kernels
