// ghost_norm and embedding_norm on a GPU, as tensors see them: kernels against references.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/embedding_norm/embedding_norm.h"
#include "kernels/ghost_norm/ghost_norm.h"
#include "kernels/position_lengths/position_lengths.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::kernels {
namespace {

class GpuNorms : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    at::manual_seed(11);
  }
};

at::Tensor random_on_gpu(at::IntArrayRef sizes) {
  return at::randn(sizes, at::TensorOptions().device(at::kCUDA).dtype(at::kBFloat16));
}

TEST_F(GpuNorms, GhostSumsEqualTheReferenceInDouble) {
  const at::Tensor fused = random_on_gpu({3, 300, 96});  // gradients that are slices of one tensor
  std::vector<GhostGroup> groups{
      {random_on_gpu({3, 300, 136}),
       {fused.narrow(2, 0, 48), fused.narrow(2, 48, 24), fused.narrow(2, 72, 24)}},
      {random_on_gpu({3, 1, 8}), {random_on_gpu({3, 1, 264})}},
      {random_on_gpu({3, 40, 20}), {random_on_gpu({3, 40, 24})}},  // a width for the reference
      {random_on_gpu({3, 129, 64}), {random_on_gpu({3, 129, 64}), random_on_gpu({3, 129, 8})}}};
  const GhostSums got = ghost_norm(groups);
  std::vector<GhostGroup> wide;
  for (const GhostGroup& group : groups) {
    wide.push_back({group.a.to(at::kDouble), {}});
    for (const at::Tensor& g : group.g) wide.back().g.push_back(g.to(at::kDouble));
  }
  const GhostSums want = ghost_norm_ref(wide);
  // float32 sums over a few hundred columns, which the multiplying unit truncates
  EXPECT_LT(((got.value - want.value) / want.magnitude).abs().max().item<double>(), 3e-6);
  EXPECT_LT(((got.magnitude - want.magnitude) / want.magnitude).abs().max().item<double>(), 3e-6);
  const GhostSums again = ghost_norm(groups);
  EXPECT_TRUE(again.value.slice(0, 0, 4).equal(got.value.slice(0, 0, 4)));
}

TEST_F(GpuNorms, DiagonalsBoundTheLengthsOfRows) {
  at::Tensor g = random_on_gpu({3, 300, 48}), padded = random_on_gpu({3, 129, 8});
  padded.narrow(1, 7, 100).zero_();
  const std::vector<GhostGroup> groups{{random_on_gpu({3, 300, 1360}), {g, g * 1e-12}},
                                       {random_on_gpu({3, 129, 64}), {padded}}};
  const GhostSums sums = ghost_norm(groups);
  if (variant_of("ghost_norm", g) != Variant::Hopper) {
    EXPECT_FALSE(sums.length.defined());
    GTEST_SKIP() << "Hopper's kernel alone has lengths";
  }
  int64_t row = 0;
  for (const GhostGroup& group : groups) {
    for (const at::Tensor& layer : group.g) {
      at::Tensor spread;
      const at::Tensor length = position_lengths_ref({group.a, layer}, &spread);
      // Rows of much the same length: the bounds are close. Padding costs them a factor.
      EXPECT_TRUE(sums.length[row].ge(length / 1.00002).all().item<bool>()) << row;
      EXPECT_TRUE(sums.spread[row].ge(spread / 1.00002).all().item<bool>()) << row;
      const double most = row == 2 ? 3 : 1.05;
      EXPECT_TRUE(sums.length[row].le(length * most).all().item<bool>()) << row;
      EXPECT_TRUE(sums.spread[row].le(spread * most * most).all().item<bool>()) << row;
      ++row;
    }
  }
  // A group that the reference takes leaves none.
  EXPECT_FALSE(ghost_norm({groups[0], {random_on_gpu({3, 40, 20}), {random_on_gpu({3, 40, 24})}}})
                   .length.defined());
}

TEST_F(GpuNorms, EmbeddingSumsEqualTheReferenceInDouble) {
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t width : {12, 515}) {
      const auto on = at::TensorOptions().device(at::kCUDA);
      const at::Tensor ids = at::randint(50, {3, 77}, on.dtype(at::kLong));
      const at::Tensor g = at::randn({3, 77, width}, on.dtype(type));
      const at::Tensor factors = at::rand({3}, on.dtype(at::kDouble));
      const at::Tensor squares = embedding_norm(ids, g, 4);
      const at::Tensor want = embedding_norm_ref(ids, g.to(at::kDouble), 4);
      EXPECT_LT(((squares - want) / want).abs().max().item<double>(), 1e-12);
      at::Tensor out = at::zeros({60, width}, on.dtype(at::kFloat));
      at::Tensor wide = at::zeros({60, width}, on.dtype(at::kDouble));
      embedding_sum(out, ids, g, factors, 4);
      embedding_sum_ref(wide, ids, g.to(at::kDouble), factors, 4);
      EXPECT_LT((out - wide).abs().max().item<double>(), 1e-5);
    }
  }
}

}  // namespace
}  // namespace moonshard::kernels
