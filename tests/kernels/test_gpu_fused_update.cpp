// The kernel of fused_update beside its reference. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tuple>

#include "kernels/fused_update/fused_update.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/update_parts.h"

namespace moonshard::kernels {
namespace {

class FusedUpdateGpu : public OnGpu {};

TEST_F(FusedUpdateGpu, EqualsTheReference) {
  const Sources sources[] = {
      {at::kFloat, {}}, {{}, at::kHalf}, {{}, at::kBFloat16}, {at::kFloat, at::kBFloat16},
      {{}, at::kFloat}, {{}, {}},        {at::kBFloat16, {}}};
  // kShort stands for float32 in halves.
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble, at::kShort}) {
    for (const UpdateKind kind : kKinds) {
      for (const Sources& from : sources) {
        for (const double std : {0.0, 1.5}) {
          const auto parts = type == at::kShort ? in_halves(make_parts(at::kFloat, kind, from))
                                                : make_parts(type, kind, from);
          auto want = copied(parts, c10::kCPU), got = copied(parts, c10::kCUDA);
          fused_update_ref(want, rule_of(kind), {std, 4, 42, 7});
          fused_update(got, rule_of(kind), {std, 4, 42, 7});
          // One rounding to 8 bits; else float32 normals and sums.
          const double relative = type == at::kBFloat16 ? 1.6e-2 : 1e-5;
          for (size_t i = 0; i < parts.size(); ++i) {
            const auto equal = [&](const at::Tensor& a, const at::Tensor& b) {
              return !a.defined() ||
                     at::allclose(a.cpu().to(at::kDouble), b.to(at::kDouble), relative, relative);
            };
            EXPECT_TRUE(equal(value_of(got[i]), value_of(want[i])) &&
                        equal(got[i].first_moment, want[i].first_moment) &&
                        equal(got[i].second_moment, want[i].second_moment))
                << c10::toString(type) << " rule " << static_cast<int>(kind) << " part " << i;
          }
        }
      }
    }
  }
}

TEST_F(FusedUpdateGpu, SumsRowsAsTheReferenceDoes) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat}) {
    at::Tensor rows = at::randn({4, 33, 129}, type);
    rows[2].fill_(NAN);
    const at::Tensor factors = at::tensor({0.5f, 1.0f, 0.0f, 0.25f}), grad = at::randn({33, 129});
    const at::Tensor want = add_weighted_rows_ref(grad.clone(), rows, factors);
    const at::Tensor got = add_weighted_rows(grad.cuda(), rows.cuda(), factors.cuda());
    EXPECT_TRUE(at::allclose(got.cpu(), want, 1e-5, 1e-5)) << c10::toString(type);
    const at::Tensor alone = add_weighted_rows({}, rows.cuda(), factors.cuda());
    EXPECT_TRUE(at::allclose(alone.cpu(), add_weighted_rows_ref({}, rows, factors), 1e-5, 1e-5));
  }
}

// Rows that no tile divides, dropped samples, sums that go on: each beside the reference, which
// forms the product first. Noise is on a grid: where the last bits of two sums fall on different
// sides, they differ by a grid point.
TEST_F(FusedUpdateGpu, FormsProductsOnTheWay) {
  const ChaChaKey secret{{1, 2, 3, 4, 5, 6, 7, 8}};
  UpdateNoise noise;
  noise.std = 0.5, noise.denominator = 4, noise.step = 9, noise.secret = &secret;
  for (const bool halves : {true, false}) {
    for (const UpdateKind kind : kKinds) {
      for (const bool goes_on : {false, true}) {
        std::vector<UpdatePart> parts;
        const at::Tensor factors = at::tensor({0.5f, 0.0f, 1.0f});
        for (const auto& [i, o, positions] :
             {std::tuple<int64_t, int64_t, int64_t>{256, 72, 130}, {768, 264, 65}, {40, 16, 70}}) {
          UpdatePart& part = parts.emplace_back();
          part.value = at::randn({o * i}, halves ? at::kFloat : at::kBFloat16);
          part.product_a = at::randn({3, positions, i}, at::kBFloat16);
          part.product_g = at::randn({3, positions, o}, at::kBFloat16) * 0.1;
          part.product_a[1].fill_(NAN);
          part.product_factors = factors;
          if (goes_on) part.grad = at::randn({o, i});
          const at::ScalarType moments =
              halves || kind == UpdateKind::Momentum ? at::kFloat : at::kBFloat16;
          if (kind != UpdateKind::Sgd) part.first_moment = at::randn({o * i}, moments);
          if (kind == UpdateKind::Adam || kind == UpdateKind::AdamW)
            part.second_moment = at::rand({o * i}, moments) + 0.1;
          part.steps = 3;
          part.parameter = static_cast<uint32_t>(i);
        }
        if (halves) parts = in_halves(parts);
        auto want = copied(parts, c10::kCPU), got = copied(parts, c10::kCUDA);
        fused_update_ref(want, rule_of(kind), noise);
        const at::Tensor on_gpu = factors.cuda();
        for (UpdatePart& part : got) part.product_factors = on_gpu;
        fused_update(got, rule_of(kind), noise);
        const double relative = halves ? 1e-5 : 1.6e-2;
        for (size_t n = 0; n < parts.size(); ++n) {
          const at::Tensor a = value_of(got[n]).cpu().to(at::kDouble),
                           b = value_of(want[n]).to(at::kDouble);
          const at::Tensor off = (a - b).abs() > relative * (1 + b.abs());
          EXPECT_LT(off.to(at::kDouble).mean().item<double>(), 1e-3)
              << (halves ? "halves" : "bfloat16") << " rule " << static_cast<int>(kind) << " part "
              << n << (goes_on ? " goes on" : "");
          EXPECT_LT((a - b).abs().max().item<double>(), 0.1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace moonshard::kernels
