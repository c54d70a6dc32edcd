// silu and gelu in its tanh form are one shape: f(x) = x sigmoid(u(x)), u(x) = x for silu and
// 2 sqrt(2 / pi) (x + 0.044715 x^3) for gelu. So f' = s (1 + x (1 - s) u'), s = sigmoid(u(x)).
#pragma once

#include "kernels/common/packs.cuh"

namespace moonshard::kernels {

struct SiluGate {
  static __device__ __forceinline__ float inner(float x) { return x; }
  static __device__ __forceinline__ float inner_slope(float) { return 1.0f; }
};

struct GeluGate {
  static constexpr float kSlope = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  static constexpr float kCubic = 0.044715f;
  static __device__ __forceinline__ float inner(float x) {
    return kSlope * x * (1.0f + kCubic * x * x);
  }
  static __device__ __forceinline__ float inner_slope(float x) {
    return kSlope * (1.0f + 3.0f * kCubic * x * x);
  }
};

struct GateValue {
  float value, slope;
};

/// f(x) and f'(x), where exp has the precision that T deserves.
template <class T, class Gate>
__device__ __forceinline__ GateValue gate_of(float x) {
  const float s = sigmoid_of<T>(Gate::inner(x));
  return {x * s, s * (1.0f + x * (1.0f - s) * Gate::inner_slope(x))};
}

}  // namespace moonshard::kernels
