// One tile of an update on the CPU: its gradient, then values and moments by the rule. Plain loops
// over a constant count, which compilers turn into vector code; ends of parts are copied into whole
// tiles, so that every element takes the same instructions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/fused_update/fused_update_launch.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {

inline constexpr int64_t kUpdateTile = kTileElements;

/// The rule's numbers, in the precision of the arithmetic.
template <class Acc>
struct TileRule {
  Acc lr, momentum, beta1, beta2, one_minus_beta1, one_minus_beta2, eps, decay;
  bool decoupled;
  Acc step_size, inverse_root2;  ///< Adam: of the part
};

struct UpdateTile {
  void* value = nullptr;
  void* low = nullptr;
  void* first_moment = nullptr;
  void* second_moment = nullptr;
};

inline float bfloat16_as_float(uint16_t number) {
  const uint32_t bits = static_cast<uint32_t>(number) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

// To the nearest, ties to even, as a cast.
inline uint16_t float_as_bfloat16(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

// ---- how numbers lie in memory -----------------------------------------------------------------

template <class T>
struct PlainNumbers {
  using Acc = T;
  T* at;
  explicit PlainNumbers(void* data, void* = nullptr) : at(static_cast<T*>(data)) {}
  Acc get(int64_t i) const { return at[i]; }
  void set(int64_t i, Acc x) const { at[i] = x; }
};

struct Bfloat16Numbers {
  using Acc = float;
  uint16_t* at;
  explicit Bfloat16Numbers(void* data, void* = nullptr) : at(static_cast<uint16_t*>(data)) {}
  Acc get(int64_t i) const { return bfloat16_as_float(at[i]); }
  void set(int64_t i, Acc x) const { at[i] = float_as_bfloat16(x); }
};

// kernels/split_float/split_float.h
struct SplitNumbers {
  using Acc = float;
  uint16_t* high;
  int16_t* low;
  SplitNumbers(void* data, void* rest)
      : high(static_cast<uint16_t*>(data)), low(static_cast<int16_t*>(rest)) {}
  Acc get(int64_t i) const {
    const uint32_t bits = (static_cast<uint32_t>(high[i]) << 16) +
                          static_cast<uint32_t>(static_cast<int32_t>(low[i]));
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
  }
  void set(int64_t i, Acc x) const {
    // The sum below would carry a NaN of large payload over to zero.
    const uint32_t bits = (bits_of(x) & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits_of(x);
    high[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    low[i] = static_cast<int16_t>(static_cast<uint16_t>(bits));
  }
};

// ---- the rule ----------------------------------------------------------------------------------

/// kind is one of Replace, Sgd, Momentum and Adam, which is AdamW, too. Moments of Adam lie as
/// `Moments`.
template <class Values, class Moments, UpdateKind kind>
[[gnu::always_inline]] inline void update_tile(const UpdateTile& tile,
                                               const typename Values::Acc* gradient,
                                               const TileRule<typename Values::Acc>& told) {
  using Acc = typename Values::Acc;
  const TileRule<Acc> rule = told;
  const Values values(tile.value, tile.low);
  if constexpr (kind == UpdateKind::Replace) {
#pragma GCC ivdep
    for (int64_t i = 0; i < kUpdateTile; ++i) values.set(i, gradient[i]);
  } else if constexpr (kind == UpdateKind::Sgd) {
#pragma GCC ivdep
    for (int64_t i = 0; i < kUpdateTile; ++i) values.set(i, values.get(i) - rule.lr * gradient[i]);
  } else if constexpr (kind == UpdateKind::Momentum) {
    Acc* const sums = static_cast<Acc*>(tile.first_moment);
#pragma GCC ivdep
    for (int64_t i = 0; i < kUpdateTile; ++i) {
      sums[i] = rule.momentum * sums[i] + gradient[i];
      values.set(i, values.get(i) - rule.lr * sums[i]);
    }
  } else {
    const Moments means(tile.first_moment), squares(tile.second_moment);
    // One of the two decays is 0.
    const Acc shrink = rule.decoupled ? rule.lr * rule.decay : Acc(0);
    const Acc pull = rule.decoupled ? Acc(0) : rule.decay;
#pragma GCC ivdep
    for (int64_t i = 0; i < kUpdateTile; ++i) {
      const Acc before = values.get(i);
      const Acc value = before - shrink * before, g = gradient[i] + pull * value;
      const Acc mean = rule.beta1 * means.get(i) + rule.one_minus_beta1 * g;
      const Acc square = rule.beta2 * squares.get(i) + rule.one_minus_beta2 * g * g;
      means.set(i, mean);
      squares.set(i, square);
      const Acc spread = std::sqrt(square) * rule.inverse_root2 + rule.eps;
      values.set(i, value - rule.step_size * (mean / spread));
    }
  }
}

}  // namespace moonshard::kernels
