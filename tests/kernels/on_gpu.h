// Tests that need a GPU say so, and why there is none, where they are skipped.
#pragma once

#include <gtest/gtest.h>

#include "runtime/core/device.h"

namespace moonshard {

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_absence_reason();
  }
};

}  // namespace moonshard
