// The kernel that drops numbers of samples beside its reference. Skipped with a reason without a
// GPU.
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/sample_dropout_cases.h"

namespace moonshard::kernels {
namespace {

class SampleDropoutGpu : public OnGpu {};

TEST_F(SampleDropoutGpu, GivesTheDigitsOfTheReferenceAndOfTheCpu) {
  compare_all_dropouts(at::kCUDA);
  const DropoutCoins here{at::tensor({5, -6}, at::kLong), 9, 0.3};
  const DropoutCoins there{here.words.to(at::kCUDA), here.stream, here.probability};
  const at::Tensor x = at::randn({2, 100, 64});
  EXPECT_TRUE(at::equal(sample_dropout(x.to(at::kCUDA), there).cpu(), sample_dropout(x, here)));
}

}  // namespace
}  // namespace moonshard::kernels
