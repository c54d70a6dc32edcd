// Loops of the CPU that drop numbers of samples.
#include "tests/kernels/sample_dropout_cases.h"

namespace moonshard::kernels {
namespace {

TEST(SampleDropout, LoopsGiveTheDigitsOfTheReference) {
  compare_all_dropouts(at::kCPU);
}

TEST(SampleDropout, AnEmptyBatchStaysEmpty) {
  const DropoutCoins coins{at::empty({0}, at::kLong), 1, 0.5};
  EXPECT_EQ(sample_dropout(at::empty({0, 4, 8}), coins).sizes(), (at::IntArrayRef{0, 4, 8}));
}

}  // namespace
}  // namespace moonshard::kernels
