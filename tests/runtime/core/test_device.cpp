#include "runtime/core/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace moonshard {
namespace {

// Filling every new tensor tripled the kernels of engines that run backward twice.
TEST(Determinism, IsOnWhileAGuardLivesAndFillsNoTensors) {
  const auto& context = at::globalContext();
  const bool algorithms = context.deterministicAlgorithms(),
             attention = context.userEnabledMemEfficientSDP(),
             fills = context.deterministicFillUninitializedMemory();
  {
    const DeterminismGuard guard(true);
    EXPECT_TRUE(context.deterministicAlgorithms());
    EXPECT_FALSE(context.userEnabledMemEfficientSDP());
    EXPECT_FALSE(context.deterministicFillUninitializedMemory());
    const DeterminismGuard nothing(false);
    EXPECT_TRUE(context.deterministicAlgorithms());
  }
  EXPECT_EQ(context.deterministicAlgorithms(), algorithms);
  EXPECT_EQ(context.userEnabledMemEfficientSDP(), attention);
  EXPECT_EQ(context.deterministicFillUninitializedMemory(), fills);
}

}  // namespace
}  // namespace moonshard
