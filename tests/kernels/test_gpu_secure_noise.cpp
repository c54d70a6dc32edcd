// The kernel of secure_noise beside its reference. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/secure_noise/secure_noise.h"
#include "kernels/secure_noise/secure_noise_math.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::kernels {
namespace {

class SecureNoiseGpu : public OnGpu {};

TEST_F(SecureNoiseGpu, EqualsTheReferenceButForACell) {
  SecureStream stream;
  for (uint32_t i = 0; i < 8; ++i) stream.key.word[i] = 0x12345678u * (i + 1);
  stream.step = 9, stream.parameter = 4;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t first : {0, 1, 4099}) {
      const double std = 0.3;
      at::Tensor want = at::randn({100'003}, type), got = want.cuda();
      add_secure_noise_ref(want, std, stream, first);
      add_secure_noise(got, std, stream, first);
      // Logarithm and sine may differ in their last bit, which moves a sum into the next cell.
      const at::Tensor cells = ((got.cpu() - want).to(at::kDouble) / secure_grid(std)).abs();
      EXPECT_LE(cells.max().item<double>(), 1.0) << c10::toString(type) << " " << first;
      EXPECT_LT(cells.gt(0.5).sum().item<int64_t>(), 20);
    }
  }
}

}  // namespace
}  // namespace moonshard::kernels
