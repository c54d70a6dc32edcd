// Norms at the ends of float32's range, by rules and by kernels. Skipped with a reason without a
// GPU.
#include "runtime/privacy/block_norms.h"
#include "tests/kernels/on_gpu.h"
#include "tests/support/extreme_norms.h"

namespace moonshard {
namespace {

class NormsGpu : public OnGpu {};

TEST_F(NormsGpu, OfRulesAreNeverTooSmall) {
  expect_norms_hold_at_all_sizes(c10::kCUDA);
}

TEST_F(NormsGpu, OfKernelsAreNeverTooSmall) {
  models::Parameter weight;
  weight.value = at::zeros({64, 128}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  models::ParamLayer layer;
  layer.name = "l";
  layer.weight = &weight;
  for (const bool mixed : {false, true}) {
    for (const int a : {-30, 0, 10, 17, 18, 30}) {
      for (const int g : {-30, -26, -24, -15, 0, 18, 30}) {
        Operands made{at::randn({2, 32, 128}, at::kDouble), at::randn({2, 32, 64}, at::kDouble)};
        made.a.narrow(1, mixed ? 16 : 0, 16).mul_(std::pow(10.0, a));
        made.g.narrow(1, mixed ? 16 : 0, 16).mul_(std::pow(10.0, g));
        if (mixed) made.g.narrow(1, 0, 16).mul_(1e-9);
        const Operands used{made.a.to(at::kCUDA, at::kBFloat16),
                            made.g.to(at::kCUDA, at::kBFloat16)};
        ASSERT_TRUE(privacy::may_join(layer, used.a, used.g));
        // One position beside them, as a modulation has it.
        const Operands one{used.a.narrow(1, 20, 1), used.g.narrow(1, 20, 1)};
        ASSERT_TRUE(privacy::may_join(layer, one.a, one.g));
        for (const auto method : {privacy::NormMethod::Ghost, privacy::NormMethod::InputLength,
                                  privacy::NormMethod::Width}) {
          const privacy::TaskNorms norms =
              privacy::norms_of({{&layer, used.a, used.g, method}, {&layer, one.a, one.g, method}});
          const std::string what = "a of 1e" + std::to_string(a) + ", g of 1e" + std::to_string(g) +
                                   ", method " + std::to_string(static_cast<int>(method));
          expect_not_too_small(norms.squares_nB[0], used, what);
          expect_not_too_small(norms.squares_nB[1], one, what + ", one position");
        }
      }
    }
  }
}

}  // namespace
}  // namespace moonshard
