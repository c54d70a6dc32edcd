// Noise, scale and optimizer in one pass: the reference by the formulas.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/fused_update/fused_update.h"
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
      at::Tensor g = from.grad + 0.5 * from.rows[0] + 0.75 * from.rows[2];
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

TEST(FusedUpdate, WithoutGradientThereIsNoiseAlone) {
  std::vector<UpdatePart> parts(1);
  parts[0].value = at::ones({11});
  parts[0].parameter = 3;
  fused_update(parts, rule_of(UpdateKind::Sgd), {2, 8, 5, 6});
  at::Tensor noise = at::zeros({11});
  add_counter_noise(noise, 2, {5, 6, 3}, 0);
  EXPECT_TRUE(at::allclose(parts[0].value, 1 - 0.05 * noise / 8));
}

}  // namespace
}  // namespace moonshard::kernels
