// Norms of layers whose operands lie at the ends of float32's range: on the CPU and on a GPU.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/privacy/layer_rules.h"

namespace moonshard {

struct Operands {
  at::Tensor a, g;
};

/// Four positions, two of ordinary size, two whose input is of the size 10^a_power and whose output
/// gradient is of the size 10^g_power; or all four of those sizes.
inline Operands operands_of_size(int a_power, int g_power, bool mixed, int64_t positions = 4) {
  Operands made{at::randn({3, positions, 16}, at::kDouble),
                at::randn({3, positions, 8}, at::kDouble)};
  const int64_t first = mixed ? positions / 2 : 0;
  made.a.narrow(1, first, positions - first).mul_(std::pow(10.0, a_power));
  made.g.narrow(1, first, positions - first).mul_(std::pow(10.0, g_power));
  if (mixed) made.g.narrow(1, 0, first).mul_(1e-9);
  return made;
}

/// A squared norm may be infinite (the sample is then dropped) or too large (it is clipped more).
/// It may lack what no bound C notices, as C is at least 1e-12, and rounding.
inline void expect_not_too_small(const at::Tensor& got, const Operands& operands,
                                 const std::string& what) {
  const at::Tensor want =
      at::bmm(operands.g.to(at::kDouble).transpose(1, 2).cpu(), operands.a.to(at::kDouble).cpu())
          .flatten(1)
          .square()
          .sum(1);
  const at::Tensor norms = got.cpu().sqrt();
  const at::Tensor holds = norms.ge(want.sqrt() * (1 - 1e-3) - 1e-14).logical_or(norms.isnan());
  EXPECT_TRUE(holds.all().item<bool>()) << what << ": " << norms << " for " << want.sqrt();
}

inline void expect_norms_hold_at_all_sizes(c10::Device device) {
  models::Parameter weight;
  weight.value = at::zeros({8, 16}, at::TensorOptions(device).dtype(at::kFloat));
  models::ParamLayer layer;
  layer.name = "l";
  layer.weight = &weight;
  using privacy::NormMethod;
  for (const int64_t positions : {1, 4}) {
    for (const bool mixed : {false, true}) {
      for (const int a : {-30, -15, 0, 10, 17, 18, 30}) {
        for (const int g : {-30, -26, -24, -15, 0, 18, 30}) {
          const Operands made = operands_of_size(a, g, mixed, positions);
          const Operands used{made.a.to(device, at::kFloat), made.g.to(device, at::kFloat)};
          for (const NormMethod method : {NormMethod::Ghost, NormMethod::InputLength,
                                          NormMethod::Width, NormMethod::Materialize}) {
            expect_not_too_small(privacy::squared_norms(layer, used.a, used.g, {method, 2}), used,
                                 "a of 1e" + std::to_string(a) + ", g of 1e" + std::to_string(g) +
                                     (mixed ? " beside others" : "") + ", method " +
                                     std::to_string(static_cast<int>(method)));
          }
        }
      }
    }
  }
}

}  // namespace moonshard
