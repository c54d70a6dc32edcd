// The kernel that rounds by coins beside its reference. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/coin_rounding/coin_rounding.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::kernels {
namespace {

class CoinRoundingGpu : public OnGpu {};

TEST_F(CoinRoundingGpu, GivesTheDigitsOfTheReference) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t count : {1, 2, 1023, 100'003}) {
    at::Tensor from = at::sin(at::arange(count, at::kFloat)) * 3;
    if (count > 6)
      from.slice(0, 0, 5).copy_(at::tensor({inf, -inf, std::nanf(""), 1e-42f, 3.4e38f}));
    from = from.to(at::kCUDA);
    const at::Tensor squares = from.square();
    const auto make = [&] { return at::empty({count}, from.options().dtype(at::kBFloat16)); };
    const at::Tensor a = make(), b = make(), c = make(), d = make();
    const RoundingCoins coins{0xFEDCBA9876543210ull, 12345, 77};
    round_by_coin({{a, from}, {b, squares}}, coins, 5'000'000'000);
    round_by_coin_ref({{c, from}, {d, squares}}, coins, 5'000'000'000);
    EXPECT_TRUE(at::equal(a.view(at::kShort), c.view(at::kShort))) << count;
    EXPECT_TRUE(at::equal(b.view(at::kShort), d.view(at::kShort))) << count;
  }
}

}  // namespace
}  // namespace moonshard::kernels
