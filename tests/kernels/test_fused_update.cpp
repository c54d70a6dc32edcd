// Noise, scale and optimizer in one pass: the reference by the formulas.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/fused_update/fused_update.h"
#include "runtime/base/check.h"
#include "tests/kernels/update_parts.h"

namespace moonshard::kernels {
namespace {

// Noise and division are in float32, whatever the gradient came in.
TEST(FusedUpdate, AddsNoiseToANarrowGradientWithoutRoundingIt) {
  const UpdateNoise noise{1.5, 4, 42, 7};
  const auto parts = make_parts(at::kFloat, UpdateKind::Sgd, {at::kBFloat16, {}});
  auto narrow = copied(parts, c10::kCPU), wide = copied(parts, c10::kCPU);
  for (UpdatePart& part : wide) part.grad = part.grad.to(at::kFloat);
  fused_update(narrow, rule_of(UpdateKind::Sgd), noise);
  fused_update(wide, rule_of(UpdateKind::Sgd), noise);
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_TRUE(narrow[i].value.equal(wide[i].value)) << i;
}

TEST(FusedUpdate, FollowsTheFormulas) {
  const UpdateNoise noise{1.5, 4, 42, 7};
  for (const UpdateKind kind : kKinds) {
    const auto parts = make_parts(at::kDouble, kind, {at::kDouble, at::kDouble});
    auto got = copied(parts, c10::kCPU);
    fused_update(got, rule_of(kind), noise);
    for (size_t i = 0; i < parts.size(); ++i) {
      const UpdatePart& from = parts[i];
      const at::Tensor& factors = from.row_factors;
      at::Tensor g = from.grad + factors[0] * from.rows[0] + factors[2] * from.rows[2];
      add_counter_noise(g, 1.5, {42, 7, from.parameter}, from.first_element);
      g = g / 4;
      at::Tensor value = from.value.clone();
      if (kind == UpdateKind::Sgd) value = value - 0.05 * g;
      if (kind == UpdateKind::Momentum) value = value - 0.05 * (0.9 * from.first_moment + g);
      if (kind == UpdateKind::Adam || kind == UpdateKind::AdamW) {
        if (kind == UpdateKind::Adam) g = g + 0.2 * value;
        if (kind == UpdateKind::AdamW) value = value * (1 - 0.05 * 0.2);
        const at::Tensor mean = 0.9 * from.first_moment + 0.1 * g;
        const at::Tensor square = 0.95 * from.second_moment + 0.05 * g * g;
        value = value - 0.05 * (mean / (1 - std::pow(0.9, 3))) /
                            ((square / (1 - std::pow(0.95, 3))).sqrt() + 1e-8);
        EXPECT_TRUE(at::allclose(got[i].first_moment, mean, 1e-12, 1e-12));
        EXPECT_TRUE(at::allclose(got[i].second_moment, square, 1e-12, 1e-12));
      }
      EXPECT_TRUE(at::allclose(got[i].value, value, 1e-12, 1e-12)) << static_cast<int>(kind);
    }
  }
}

TEST(FusedUpdate, HalvesAreTheNearestBfloat16AndLoseNothing) {
  const float least = 1e-45f, most = 3.4028234e38f;
  const at::Tensor tie =
      at::tensor({0x3f808000, 0x3f818000, -0x407f8000}, at::kInt).view(at::kFloat);
  const at::Tensor value = at::cat({at::randn({100000}), at::randn({1000}) * 1e-39, tie,
                                    at::tensor({0.0f, -0.0f, least, -least, most, -most, INFINITY,
                                                -INFINITY, NAN, 1.0f, -2.0f})});
  at::Tensor high = at::empty(value.sizes(), at::kBFloat16);
  at::Tensor low = at::empty(value.sizes(), at::kShort);
  split_float(value, high, low);
  const at::Tensor back = joined_float(high, low), is_nan = value.isnan();
  EXPECT_TRUE(at::equal(back.view(at::kInt).masked_fill(is_nan, 0),
                        value.view(at::kInt).masked_fill(is_nan, 0)));
  EXPECT_TRUE(at::equal(back.isnan(), is_nan));
  EXPECT_TRUE(at::equal(high.isnan(), is_nan));
  const at::Tensor is_tie = value.view(at::kInt).bitwise_and(0xffff).eq(0x8000);
  EXPECT_GE(is_tie.sum().item<int64_t>(), 3);
  const at::Tensor other = high.ne(value.to(at::kBFloat16)).logical_and(is_nan.logical_not());
  EXPECT_FALSE(other.logical_and(is_tie.logical_not()).any().item<bool>());
  EXPECT_EQ(high[101000].item<float>(), 1.0078125f) << "ties go away from zero";
}

// The same numbers as for whole float32 values, to the last bit.
TEST(FusedUpdate, HalvesAreUpdatedAsTheWhole) {
  for (const UpdateKind kind : kKinds) {
    for (const double std : {0.0, 1.5}) {
      const auto parts = make_parts(at::kFloat, kind, {at::kFloat, at::kBFloat16});
      auto whole = copied(parts, c10::kCPU), halves = in_halves(copied(parts, c10::kCPU));
      fused_update(whole, rule_of(kind), {std, 4, 42, 7});
      fused_update(halves, rule_of(kind), {std, 4, 42, 7});
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(halves[i].value.scalar_type(), at::kBFloat16);
        EXPECT_TRUE(at::equal(value_of(halves[i]), whole[i].value)) << static_cast<int>(kind);
        if (parts[i].first_moment.defined()) {
          EXPECT_TRUE(at::equal(halves[i].first_moment, whole[i].first_moment));
        }
      }
    }
  }
}

TEST(FusedUpdate, StridedValuesAreUpdatedInPlace) {
  for (const UpdateKind kind : kKinds) {
    const auto parts = make_parts(at::kFloat, kind, {at::kFloat, {}});
    auto dense = copied(parts, c10::kCPU), strided = copied(parts, c10::kCPU);
    std::vector<at::Tensor> spread;
    for (UpdatePart& part : strided) {
      spread.push_back(at::zeros({part.value.numel(), 2}));
      const at::Tensor column = spread.back().select(1, 1);
      column.copy_(part.value);
      part.value = column;
    }
    fused_update(dense, rule_of(kind), {1.5, 4, 42, 7});
    fused_update(strided, rule_of(kind), {1.5, 4, 42, 7});
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(at::allclose(spread[i].select(1, 1), dense[i].value, 1e-6, 1e-6));
      EXPECT_EQ(spread[i].select(1, 0).abs().max().item<float>(), 0) << "its neighbours";
    }
  }
}

TEST(FusedUpdate, WithoutGradientThereIsNoiseAlone) {
  std::vector<UpdatePart> parts(1);
  parts[0].value = at::ones({11});
  parts[0].parameter = 3;
  fused_update(parts, rule_of(UpdateKind::Sgd), {2, 8, 5, 6});
  at::Tensor noise = at::zeros({11});
  add_counter_noise(noise, 2, {5, 6, 3}, 0);
  EXPECT_TRUE(at::allclose(parts[0].value, 1 - 0.05 * noise / 8));
}

TEST(FusedUpdate, RowsMayHaveAFactorForEach128Elements) {
  const at::Tensor rows = at::randn({2, 500});
  const at::Tensor factors = at::stack({at::tensor({1.0f, 2.0f, 4.0f, 8.0f}), at::zeros({4})});
  rows[1].fill_(INFINITY);
  const at::Tensor want = rows[0] * at::pow(2, at::arange(500).floor_divide(128));
  EXPECT_TRUE(add_weighted_rows({}, rows, factors).equal(want));
  // A part of a parameter: its first element says where in the table it begins.
  std::vector<UpdatePart> parts(1);
  parts[0].value = at::zeros({300});
  parts[0].rows = rows.narrow(1, 100, 300);
  parts[0].row_factors = factors;
  parts[0].first_element = 100;
  take_gradients(parts);
  EXPECT_TRUE(parts[0].value.equal(want.narrow(0, 100, 300)));
  parts[0].first_element = 300;  // 600 elements, and factors of 512
  parts[0].rows = rows.narrow(1, 100, 300);
  parts[0].row_factors = factors;
  EXPECT_THROW(take_gradients(parts), UsageError);
}

// What a unit's row is filled with before it travels.
TEST(FusedUpdate, ManyRowsWithOneFactorEachAreFew) {
  constexpr int64_t kRows = 70000;  // whose square is beyond 32 bits
  std::vector<UpdatePart> parts(1);
  parts[0].value = at::zeros({4});
  parts[0].rows = at::ones({kRows, 4});
  parts[0].row_factors = at::full({kRows}, 0.5);
  UpdateRule rule = rule_of(UpdateKind::Sgd);
  rule.lr = 1;
  fused_update(parts, rule, {});
  EXPECT_TRUE(at::allclose(parts[0].value, at::full({4}, -0.5 * kRows)));
}

TEST(FusedUpdate, TakesGradientsRowsBothOrNeither) {
  const at::Tensor grad = at::randn({5, 3}), rows = at::randn({4, 5, 3});
  const at::Tensor factors = at::tensor({0.5f, 0.0f, 2.0f, 1.0f});
  rows[1].fill_(NAN);  // of factor 0: left out
  const at::Tensor weighted = rows[0] * 0.5 + rows[2] * 2 + rows[3];
  const at::Tensor row = at::full({60}, 7.0f);
  std::vector<UpdatePart> parts(4);
  for (int64_t i = 0; i < 4; ++i)
    parts[static_cast<size_t>(i)].value = row.narrow(0, 15 * i, 15).view({5, 3});
  parts[0].grad = grad.clone();
  parts[2].grad = grad.clone();
  parts[1].rows = parts[2].rows = rows;
  parts[1].row_factors = parts[2].row_factors = factors;
  take_gradients(parts);
  const at::Tensor want = at::stack({grad, weighted, grad + weighted, at::zeros({5, 3})});
  EXPECT_TRUE(at::allclose(row.view({4, 5, 3}), want, 1e-6, 1e-6)) << row;
}

}  // namespace
}  // namespace moonshard::kernels
