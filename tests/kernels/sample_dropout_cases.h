// Dropout of samples beside its reference, bit by bit, on any device.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/sample_dropout/sample_dropout.h"

namespace moonshard::kernels {

inline void compare_dropout(at::Device device, at::ScalarType type, at::IntArrayRef sizes,
                            double probability) {
  SCOPED_TRACE(c10::str(device, " ", type, " ", sizes, " ", probability));
  const int64_t samples = sizes[0];
  const DropoutCoins coins{at::arange(samples, at::kLong).mul(0x123456789abcdef).sub(77).to(device),
                           0xfedcba9876543210ull, probability};
  const auto numbers = [&](double step) {
    return at::sin(at::arange(c10::multiply_integers(sizes), at::kDouble) * step)
        .view(sizes)
        .to(device, type);
  };
  const at::Tensor x = numbers(0.7), other = numbers(1.3);
  EXPECT_TRUE(at::equal(sample_dropout(x, coins), sample_dropout_ref(x, coins)));
  at::Tensor sum = other.clone(), want = other.clone();
  add_sample_dropout(sum, x, coins);
  add_sample_dropout_ref(want, x, coins);
  EXPECT_TRUE(at::equal(sum, want));
  if (x.dim() == 3) {
    const at::Tensor turned = numbers(0.9).transpose(1, 2);
    EXPECT_TRUE(at::equal(sample_dropout(turned, coins), sample_dropout_ref(turned, coins)));
  }
}

inline void compare_all_dropouts(at::Device device) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kHalf}) {
    for (const double probability : {1e-9, 0.05, 0.5, 0.97}) {
      compare_dropout(device, type, {3, 5, 7}, probability);  // a word is left half used
      compare_dropout(device, type, {2, 33, 1024},
                      probability);  // several tiles, the last one short
      compare_dropout(device, type, {5, 16, 8}, probability);
      compare_dropout(device, type, {1, 1, 1}, probability);
    }
    compare_dropout(device, type, {70'000, 8}, 0.5);  // more samples than a grid has rows
  }
}

}  // namespace moonshard::kernels
