// The kernel of fused_update beside its reference. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/fused_update/fused_update.h"
#include "tests/kernels/on_gpu.h"
#include "tests/kernels/update_parts.h"

namespace moonshard::kernels {
namespace {

class FusedUpdateGpu : public OnGpu {};

TEST_F(FusedUpdateGpu, EqualsTheReference) {
  const Sources sources[] = {{at::kFloat, {}},
                             {{}, at::kHalf},
                             {{}, at::kBFloat16},
                             {at::kFloat, at::kBFloat16},
                             {{}, at::kFloat},
                             {{}, {}},
                             {at::kBFloat16, {}},
                             {{}, at::kHalf, true},
                             {at::kFloat, at::kHalf, true}};
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
    const at::Tensor units = factors.unsqueeze(1) * at::rand({4, 34}).add(0.1);
    const at::Tensor each = add_weighted_rows({}, rows.cuda(), units.cuda());
    EXPECT_TRUE(at::allclose(each.cpu(), add_weighted_rows_ref({}, rows, units), 1e-5, 1e-5));
  }
}

}  // namespace
}  // namespace moonshard::kernels
