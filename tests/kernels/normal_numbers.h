// Whether numbers are standard normal, as far as many of them tell.
#pragma once

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace moonshard::kernels {

/// Mean, variance and fourth moment within four standard errors; Kolmogorov-Smirnov distance below
/// ks_limit / sqrt(n): 1.95 is exceeded once in a thousand, 2.23 once in ten thousand.
inline void expect_standard_normal(const at::Tensor& z, double ks_limit) {
  const int64_t n = z.numel();
  const double root = std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(z.mean().item<double>(), 0, 4 / root);
  EXPECT_NEAR(z.square().mean().item<double>(), 1, 4 * std::sqrt(2.0) / root);
  EXPECT_NEAR(z.pow(4).mean().item<double>(), 3, 4 * std::sqrt(96.0) / root);
  const at::Tensor sorted = std::get<0>(z.sort());
  const at::Tensor expected = 0.5 * at::erfc(-sorted / std::sqrt(2.0));
  const at::Tensor steps = (at::arange(n, at::kDouble) + 0.5) / static_cast<double>(n);
  EXPECT_LT((expected - steps).abs().max().item<double>(), ks_limit / root);
}

}  // namespace moonshard::kernels
