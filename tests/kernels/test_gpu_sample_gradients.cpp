// flash_norm, clipped_sum and position_lengths on a GPU, each beside its reference.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

#include "kernels/clipped_sum/clipped_sum.h"
#include "kernels/common/choice.h"
#include "kernels/flash_norm/flash_norm.h"
#include "kernels/position_lengths/position_lengths.h"
#include "runtime/base/check.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/restored.h"

namespace moonshard::kernels {
namespace {

class GpuSampleGradients : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    at::manual_seed(5);
  }
};

// Operands as layers leave them: the inputs a part of something wider.
SampleProblem problem(int64_t samples, int64_t positions, int64_t i, int64_t o,
                      at::ScalarType type = at::kBFloat16) {
  const at::Tensor wide = at::randn({samples, positions, i + 16}, at::kCUDA).to(type);
  return {wide.narrow(2, 8, i), at::randn({samples, positions, o}, at::kCUDA).mul_(0.1).to(type)};
}

// The third has a width that the kernel does not take.
std::vector<SampleProblem> problems() {
  return {problem(3, 100, 136, 264), problem(3, 65, 512, 24), problem(3, 40, 36, 64),
          problem(3, 300, 384, 520), problem(3, 80, 16, 264), problem(3, 80, 8, 272),
          problem(3, 80, 64, 200)};
}

double worst(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor difference = (got.to(at::kDouble) - wanted.to(at::kDouble)).abs();
  return (difference.max() / wanted.to(at::kDouble).abs().max()).item<double>();
}

TEST_F(GpuSampleGradients, NormsEqualTheReference) {
  const std::vector<SampleProblem> list = problems();
  const at::Tensor squares = flash_norm(list);
  const ReferenceOnly reference;
  // Sums of up to 300 products in float32, cut off by the tensor cores.
  EXPECT_LT(worst(squares / flash_norm(list), at::ones_like(squares)), 1e-4);
}

TEST_F(GpuSampleGradients, KeptGradientsEqualTheReference) {
  const std::vector<SampleProblem> list = problems();
  list[3].g.select(2, 7).mul_(1e-15);
  list[3].g.select(2, 9).zero_();
  std::vector<KeptGradient> kept[2];
  at::Tensor squares[2];
  const auto is_kept = [](const SampleProblem& one) {
    return has_whole_units(one.a.size(2), one.g.size(2));
  };
  std::vector<SampleProblem> some;
  std::copy_if(list.begin(), list.end(), std::back_inserter(some), is_kept);
  for (auto& side : kept) {
    KeptGradients all = empty_kept(some);
    auto next = all.of.begin();
    for (const SampleProblem& one : list) side.push_back(is_kept(one) ? *next++ : KeptGradient());
  }
  squares[0] = flash_norm(list, kept[0]);
  const ReferenceOnly reference;
  squares[1] = flash_norm(list, kept[1]);
  EXPECT_LT(worst(squares[0] / squares[1], at::ones_like(squares[0])), 1e-4);
  for (size_t n = 0; n < list.size(); ++n) {
    if (!kept[0][n].defined()) continue;
    const at::Tensor got = restored(kept[0][n]), want = restored(kept[1][n]);
    EXPECT_LT(worst(got, want), 1e-3);
    // A largest number beside a power of two may fall on its other side.
    const at::Tensor ratio = kept[0][n].units / kept[1][n].units;
    EXPECT_TRUE(ratio.eq(1).logical_or(ratio.eq(2)).logical_or(ratio.eq(0.5)).all().item<bool>());
    EXPECT_GT(ratio.eq(1).to(at::kFloat).mean().item<double>(), 0.99);
    if (n == 3) {
      EXPECT_LT(worst(got.select(1, 7), want.select(1, 7)), 1e-3);
    }
  }
}

TEST_F(GpuSampleGradients, ClippedSumsEqualTheReference) {
  const std::vector<SampleProblem> list = problems();
  list[0].a[1].fill_(NAN);
  const at::Tensor factors = at::tensor({0.5f, 0.0f, 1e-12f}).to(at::kCUDA);
  std::vector<at::Tensor> out[2];
  for (auto& side : out) {
    for (const SampleProblem& p : list)
      side.push_back(at::zeros({p.g.size(2), p.a.size(2)}, p.a.options().dtype(at::kFloat)));
  }
  clipped_sum(list, factors, out[0], false);
  clipped_sum(list, factors, out[0], true);
  const ReferenceOnly reference;
  clipped_sum(list, factors, out[1], false);
  clipped_sum(list, factors, out[1], true);
  for (size_t n = 0; n < list.size(); ++n) EXPECT_LT(worst(out[0][n], out[1][n]), 1e-4);
}

// One position: a product of the depth B in float32, whatever the widths and the operands' format.
TEST_F(GpuSampleGradients, SumsOfOnePositionEqualDouble) {
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    for (const int64_t samples : {1, 8, 33, 70}) {
      const std::vector<SampleProblem> list = {
          problem(samples, 1, 1152, 6912, type), problem(samples, 1, 4096, 3, type),
          problem(samples, 1, 37, 129, type), problem(samples, 9, 64, 72, type)};
      at::Tensor factors = at::rand({samples}, at::kCUDA).mul_(0.9).add_(0.01);
      if (samples > 1) {
        factors[1].fill_(0);
        for (const SampleProblem& p : list) p.a[1].fill_(NAN);
      }
      std::vector<at::Tensor> out;
      for (const SampleProblem& p : list)
        out.push_back(at::full({p.g.size(2), p.a.size(2)}, NAN, p.a.options().dtype(at::kFloat)));
      clipped_sum(list, factors, out, false);
      clipped_sum(list, factors, out, true);
      for (size_t n = 0; n < list.size(); ++n) {
        const at::Tensor keep = factors.ne(0).view({samples, 1, 1});
        const at::Tensor g = list[n].g.to(at::kDouble).mul(factors.view({samples, 1, 1}));
        const at::Tensor a = list[n].a.to(at::kDouble).where(keep, 0.0);
        const at::Tensor wanted = at::einsum("bto,bti->oi", {g, a}) * 2;
        EXPECT_LT(worst(out[n], wanted), 3e-6) << n << " of " << samples << " samples";
      }
      std::vector<at::Tensor> again;
      for (const at::Tensor& sum : out) again.push_back(at::empty_like(sum));
      clipped_sum(list, factors, again, false);
      clipped_sum(list, factors, again, true);
      for (size_t n = 0; n < 3; ++n) EXPECT_TRUE(again[n].equal(out[n]));
    }
  }
}

TEST_F(GpuSampleGradients, BoundedSquaresEqualTheReference) {
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    const std::vector<SampleProblem> list = {
        problem(5, 100, 136, 264, type), problem(5, 1, 1152, 6912, type),
        problem(5, 65, 512, 24, type), problem(5, 1, 37, 3, type)};
    const auto on = at::TensorOptions(at::kCUDA).dtype(at::kDouble);
    // A sum that cancels, an ordinary one, a tiny one beside long rows, and what is not finite.
    const at::Tensor value = at::tensor({-1.0, 5.0, 1e-12, 0.0, 3.0}).to(on);
    const at::Tensor magnitude = at::tensor({1e6, 6.0, 1e-11, 0.0, INFINITY}).to(on);
    const std::vector<FoundSquares> found = {
        {NormSource::Gram, value, magnitude}, {}, {NormSource::Gradient, value.abs(), {}}, {}};
    const at::Tensor squares = bounded_squares(list, found);
    const ReferenceOnly reference;
    const at::Tensor wanted = bounded_squares(list, found);
    EXPECT_TRUE(squares.isinf().equal(wanted.isinf()));
    EXPECT_LT(worst(at::nan_to_num(squares / wanted, 1.0), at::ones_like(squares)), 3e-5)
        << "lengths are rounded up by 1e-5";
    for (const int64_t one : {1, 3})
      EXPECT_LT(worst(squares[one] / wanted[one], at::ones_like(squares[one])), 1e-13);
  }
}

TEST_F(GpuSampleGradients, KnownLengthsStandInForRows) {
  const std::vector<SampleProblem> list = {problem(5, 100, 136, 264, at::kBFloat16),
                                           problem(5, 1, 1152, 6912, at::kBFloat16),
                                           problem(5, 65, 512, 24, at::kBFloat16)};
  const auto on = at::TensorOptions(at::kCUDA).dtype(at::kDouble);
  const at::Tensor value = at::tensor({1.0, 5.0, 1e-12, 0.0, 3.0}).to(on), magnitude = value * 2;
  at::Tensor spreads;
  const at::Tensor lengths = position_lengths(list, &spreads);
  std::vector<FoundSquares> found = {
      {NormSource::Gram, value, magnitude}, {}, {NormSource::Gradient, value, {}}};
  const at::Tensor by_rows = bounded_squares(list, found);
  found[0].length = lengths[0];
  found[0].spread = spreads[0];
  EXPECT_TRUE(bounded_squares(list, found).equal(by_rows));
  // Nothing but what is known: no rows at all. And a length of ten times as much counts.
  found[0].length = lengths[0] * 10;
  const at::Tensor longer = bounded_squares({list[0]}, {found[0]})[0];
  EXPECT_TRUE(longer.gt(by_rows[0]).all().item<bool>());
  const ReferenceOnly reference;
  EXPECT_LT(worst(longer / bounded_squares({list[0]}, {found[0]})[0], at::ones_like(longer)),
            1e-12);
  found[2].length = lengths[2];
  EXPECT_THROW(bounded_squares(list, found), UsageError);  // of gradients they are exact
}

TEST_F(GpuSampleGradients, LengthsEqualTheReference) {
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    std::vector<SampleProblem> list = {problem(3, 100, 136, 264, type),
                                       problem(3, 100, 37, 129, type)};
    list.push_back({list[0].a, list[1].g});  // shared tensors
    const at::Tensor lengths = position_lengths(list);
    const ReferenceOnly reference;
    EXPECT_LT(worst(lengths / position_lengths(list), at::ones_like(lengths)), 2e-6);
  }
}

}  // namespace
}  // namespace moonshard::kernels
