// Queries, keys and values of one projection beside LibTorch's views of it.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/models/blocks/joined_heads.h"

namespace moonshard::models {
namespace {

constexpr int64_t B = 2, T = 5, H = 3;

std::vector<at::Tensor> by_views(const at::Tensor& qkv, int64_t d) {
  return qkv.view({B, T, 3, H, d}).permute({2, 0, 3, 1, 4}).unbind(0);
}

// Widths that are whole numbers of 16 bytes in some of the dtypes, and in none.
TEST(JoinedHeads, AreViewsAndTheirGradientIsJoined) {
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const int64_t d : {8, 6, 3}) {
      const at::Tensor qkv = at::randn({B, T, 3 * H * d}, type).set_requires_grad(true);
      const auto got = heads_of(qkv, H, d);
      const auto want = by_views(qkv, d);
      std::vector<at::Tensor> gradients;
      for (size_t part = 0; part < 3; ++part) {
        EXPECT_TRUE(got[part].equal(want[part]));
        EXPECT_EQ(got[part].data_ptr(), want[part].data_ptr()) << "no copy";
        // As kernels hand them back: by heads, and by tokens.
        gradients.push_back(part == 1 ? at::randn({B, H, T, d}, type)
                                      : at::randn({B, T, H, d}, type).transpose(1, 2));
      }
      const auto of = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        return torch::autograd::grad({q, k, v}, {qkv}, gradients)[0];
      };
      EXPECT_TRUE(of(got[0], got[1], got[2]).equal(of(want[0], want[1], want[2])))
          << c10::toString(type) << " " << d;
    }
  }
}

TEST(JoinedHeads, ThatNothingDependsOnHaveNoGradient) {
  const at::Tensor qkv = at::randn({B, T, 3 * H * 8}).set_requires_grad(true);
  const auto got = heads_of(qkv, H, 8);
  const at::Tensor gradient =
      torch::autograd::grad({got[1].square().sum()}, {qkv})[0].view({B, T, 3, H, 8});
  EXPECT_TRUE(gradient.select(2, 0).eq(0).all().item<bool>());
  EXPECT_TRUE(gradient.select(2, 1).transpose(1, 2).equal(2 * got[1].detach()));
  EXPECT_TRUE(gradient.select(2, 2).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace moonshard::models
