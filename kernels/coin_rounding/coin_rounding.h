// float32 to bfloat16 by a coin: to one of the two neighbours, to the farther one with the
// probability of the distance covered, so that the result is right on average. Coins are a function
// of (key, step, parameter, element): the same digits from loops, from LibTorch's operations and
// from the kernel, in any split.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/coin_rounding/coin_rounding_launch.h"

namespace moonshard::kernels {

/// Coins of one step of a parameter.
struct RoundingCoins {
  uint64_t key = 0;
  uint64_t step = 0;
  uint32_t parameter = 0;
};

/// What is rounded: `from` in float32 (or wider) to `to`, bfloat16.
struct Rounded {
  at::Tensor to, from;
};

/// All of as many elements, contiguous; the first is `first_element` of its parameter. At most four
/// with the same coins: each takes 16 bits of its own.
void round_by_coin(const std::vector<Rounded>& states, const RoundingCoins& coins,
                   int64_t first_element);
/// The definition of correct, by LibTorch's operations.
void round_by_coin_ref(const std::vector<Rounded>& states, const RoundingCoins& coins,
                       int64_t first_element);

/// Where the parameter's counter starts in this step, for an element.
uint64_t coin_origin(const RoundingCoins& coins, int64_t first_element);

}  // namespace moonshard::kernels
