// Tests that need a GPU say so, and why there is none, where they are skipped.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/core/device.h"

namespace moonshard {

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_absence_reason();
  }
};

inline at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(at::kCUDA);
}

/// Relative to the norm: roundings that fall to the other side are rare and do not add up.
inline double difference(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_EQ(got.scalar_type(), want.scalar_type());
  const at::Tensor wide = want.to(at::kDouble);
  return ((got.to(at::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

}  // namespace moonshard
