// embedding_norm where there is no GPU: the references against each sample's own gradient table.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/embedding_norm/embedding_norm.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

// [B, V, d] in double, position by position.
at::Tensor tables(const at::Tensor& ids, const at::Tensor& g, int64_t V, int64_t padding_id) {
  at::Tensor table = at::zeros({ids.size(0), V, g.size(2)}, at::kDouble);
  for (int64_t b = 0; b < ids.size(0); ++b) {
    for (int64_t t = 0; t < ids.size(1); ++t) {
      const int64_t id = ids[b][t].item<int64_t>();
      if (id != padding_id) table[b][id].add_(g[b][t].to(at::kDouble));
    }
  }
  return table;
}

TEST(EmbeddingNorm, EqualsTheGradientsOfSamples) {
  at::manual_seed(5);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t padding_id : {-1, 2}) {
      for (const int64_t T : {1, 9}) {
        const int64_t V = 6;
        const at::Tensor ids = at::randint(V, {3, T}, at::kLong);
        const at::Tensor g = at::randn({3, T, 5}, at::kDouble).to(type);
        const at::Tensor table = tables(ids, g, V, padding_id);
        const double limit = type == at::kDouble ? 1e-13 : 1e-5;
        const at::Tensor got = embedding_norm(ids, g, padding_id);
        EXPECT_EQ(got.scalar_type(), at::kDouble);
        EXPECT_LT((got - table.square().sum({1, 2})).abs().max().item<double>(), limit * 100);
        const at::Tensor factors = at::tensor({0.5, 0.0, 2.0}, at::kDouble);
        at::Tensor out = at::ones({V, 5}, type == at::kDouble ? at::kDouble : at::kFloat);
        embedding_sum(out, ids, g, factors, padding_id);
        const at::Tensor want = (table * factors.view({3, 1, 1})).sum(0) + 1;
        EXPECT_LT((out - want).abs().max().item<double>(), limit * 10);
        embedding_sum(out, ids, g, {}, padding_id);
        EXPECT_LT((out - want - table.sum(0)).abs().max().item<double>(), limit * 10);
      }
    }
  }
}

TEST(EmbeddingNorm, ADroppedSampleAddsNothing) {
  const at::Tensor ids = at::zeros({2, 3}, at::kLong);
  at::Tensor g = at::ones({2, 3, 4});
  g[0][1][2] = NAN;
  at::Tensor out = at::zeros({2, 4});
  embedding_sum(out, ids, g, at::tensor({0.0, 1.0}, at::kDouble), -1);
  EXPECT_TRUE(out[0].eq(3).all().item<bool>());
  EXPECT_TRUE(out[1].eq(0).all().item<bool>());
  const at::Tensor squares = embedding_norm(ids, g, -1);
  EXPECT_TRUE(squares[0].isnan().item<bool>());
  EXPECT_EQ(squares[1].item<double>(), 36);
}

TEST(EmbeddingNorm, SaysWhatDoesNotFit) {
  const at::Tensor ids = at::zeros({2, 3}, at::kLong);
  EXPECT_THROW(embedding_norm(ids, at::ones({2, 4, 8}), -1), UsageError);
  EXPECT_THROW(embedding_norm(ids.to(at::kInt), at::ones({2, 3, 8}), -1), UsageError);
  at::Tensor out = at::zeros({4, 7});
  EXPECT_THROW(embedding_sum(out, ids, at::ones({2, 3, 8}), {}, -1), UsageError);
  at::Tensor fits = at::zeros({4, 8});
  EXPECT_THROW(embedding_sum(fits, ids, at::ones({2, 3, 8}), at::ones({3}), -1), UsageError);
}

}  // namespace
}  // namespace moonshard::kernels
