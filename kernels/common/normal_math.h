// Uniform words to Box-Muller's radius and angle, shared by the generators of noise. Logarithm,
// sine and cosine are written out, in float32 and without branches: a compiler vectorises them, and
// every device draws the same numbers up to the last bit or two (secret noise on a GPU has the
// GPU's own logarithm: secure_noise/secure_noise_math.h). On the GPU quotient and root use
// the approximate instructions: exact ones would be a third of all instructions, for an
// insignificant last bit (2e-7 of a normal).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/common/philox.h"  // MS_HOST_DEVICE

namespace moonshard::kernels {

// For denominators near 1 and normal numbers: extreme ones are not scaled.
MS_HOST_DEVICE float quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
#else
  return a / b;
#endif
}

MS_HOST_DEVICE float root(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#else
  return sqrtf(x);
#endif
}

// ln x for 0 < x < 1: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)).
// Five terms of the series leave 1e-9.
MS_HOST_DEVICE float log_of_uniform(float x) {
  int32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;  // sqrt(1/2)
  bits -= exponent * (1 << 23);
  float m;
  memcpy(&m, &bits, sizeof m);
  const float s = quotient(m - 1.0f, m + 1.0f), q = s * s;
  const float series = 1.0f + q * (1.0f / 3 + q * (1.0f / 5 + q * (1.0f / 7 + q * (1.0f / 9))));
  return static_cast<float>(exponent) * 0.6931471805599453f + 2.0f * s * series;
}

MS_HOST_DEVICE float radius_of_uniform(float uniform) {
  return root(-2.0f * log_of_uniform(uniform));
}

/// A full 32-bit word reaches farther into the tails than uniform_open's 24 bits.
MS_HOST_DEVICE float radius_of_word(uint32_t word) {
  const float uniform = static_cast<float>(word) * 0x1p-32f + 0x1p-33f;
  return radius_of_uniform(uniform < 1.0f ? uniform : 0.99999994f);
}

struct SineCosine {
  float sine, cosine;
};

// Of an angle of so many quarter turns and x, which is at most pi / 4: there the power series to
// x^9 and x^8 leave 3e-8.
MS_HOST_DEVICE SineCosine turned(int32_t quarter, float x) {
  const float q = x * x;
  const float s =
      x * (1.0f + q * (-1.0f / 6 + q * (1.0f / 120 + q * (-1.0f / 5040 + q * (1.0f / 362880)))));
  const float c = 1.0f + q * (-1.0f / 2 + q * (1.0f / 24 + q * (-1.0f / 720 + q * (1.0f / 40320))));
  const bool odd = (quarter & 1) != 0;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  return {(quarter & 2) != 0 ? -sine : sine, ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}

/// Of u full turns, 0 < u < 1.
MS_HOST_DEVICE SineCosine turn(float u) {
  const int32_t quarter = static_cast<int32_t>(u * 4.0f + 0.5f);
  return turned(quarter, (u - 0.25f * static_cast<float>(quarter)) * 6.283185307179586f);
}

/// Of word x 2^-32 full turns: all 32 bits count.
MS_HOST_DEVICE SineCosine turn_of_word(uint32_t word) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;
  const auto rest = static_cast<int32_t>(word - (quarter << 30));
  return turned(static_cast<int32_t>(quarter), static_cast<float>(rest) * 1.4629180792671596e-9f);
}

}  // namespace moonshard::kernels
