// What a block's layers go through together on a GPU, part by part, by the operations' references:
// what is kept, which norm is the cheaper, layers of one position, cross terms.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/privacy/block_norms.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/norm_cost.h"

namespace moonshard {
namespace {

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor exact = want.to(at::kDouble);
  return ((got.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

TEST(JoinedParts, ShareAnInputThatIsKept) {
  models::ParamLayer layer;
  const at::Tensor input = at::zeros({2, 100, 64}, at::kBFloat16);
  const auto kept = [&](const std::vector<std::pair<at::Tensor, int64_t>>& widths) {
    std::vector<privacy::LinearTask> tasks;
    for (const auto& [a, out] : widths) {
      tasks.push_back({&layer, a, at::zeros({2, 100, out}, at::kBFloat16),
                       privacy::NormMethod::Ghost, privacy::Keep::Inputs, true});
    }
    privacy::keep_the_smaller(tasks);
    std::string letters;
    for (const privacy::LinearTask& task : tasks)
      letters += task.keep == privacy::Keep::Gradients ? 'g' : 'i';
    return letters;
  };
  const at::Tensor other = input.clone();
  EXPECT_EQ(kept({{input, 64}}), "g");   // 64 x 64 against 100 x 128
  EXPECT_EQ(kept({{input, 512}}), "g");  // 64 x 512 against 100 x 576
  // With a wide input each by itself would keep (a, g); ...
  const at::Tensor wide = at::zeros({2, 100, 512}, at::kBFloat16);
  EXPECT_EQ(kept({{wide, 512}}), "i");  // 512 x 512 against 100 x 1024
  EXPECT_EQ(kept({{wide, 64}}), "g");   // 512 x 64 against 100 x 576
  // ... where one keeps the input, another that reads it has only its g to compare with.
  EXPECT_EQ(kept({{wide, 512}, {wide, 64}}), "ii");
  EXPECT_EQ(kept({{wide, 512}, {wide.clone(), 64}}), "ig");
  EXPECT_EQ(kept({{input, 64}, {other, 64}, {wide, 512}}), "ggi");
}

// Tiles of positions are the cheaper ones while the sequence is short relative to the widths.
TEST(JoinedParts, TakeTheCheaperFlashNorm) {
  privacy::LayerShape shape{2, 1024, 4096, 14336, 2, true, true};
  EXPECT_EQ(privacy::choose_flash(shape, "auto"), privacy::NormMethod::InputLength);
  shape.positions = 8192;
  EXPECT_EQ(privacy::choose_flash(shape, "auto"), privacy::NormMethod::Width);
  EXPECT_EQ(privacy::choose_flash(shape, "input_length"), privacy::NormMethod::InputLength);
  shape.positions = 1024;
  EXPECT_EQ(privacy::choose_flash(shape, "width"), privacy::NormMethod::Width);
}

// A modulation or a head: its norm is a product of two lengths, whatever its width, and its sum one
// product; both go with the block's.
TEST(JoinedParts, MayHaveOnePosition) {
  models::Parameter weight, bias;
  weight.value = at::zeros({3, 20});
  bias.value = at::zeros({3});
  models::ParamLayer head;
  head.weight = &weight;
  head.bias = &bias;
  const at::Tensor a = at::randn({5, 20}), g = at::randn({5, 3});
  EXPECT_FALSE(privacy::may_join(head, a, g));
  const privacy::JoinedByReferences joined;
  ASSERT_TRUE(privacy::may_join(head, a, g));
  EXPECT_FALSE(privacy::may_join(head, a.view({1, 5, 20}), g.view({1, 5, 3}))) << "odd widths";
  const at::Tensor wide_a = at::randn({5, 7, 16}), wide_g = at::randn({5, 7, 24});
  for (const auto method : {privacy::NormMethod::Ghost, privacy::NormMethod::Width}) {
    const privacy::TaskNorms norms = privacy::norms_of(
        {{&head, wide_a, wide_g, method}, {&head, a.unsqueeze(1), g.unsqueeze(1), method}});
    const auto square = [](const at::Tensor& x) { return x.to(at::kDouble).square().sum(1); };
    EXPECT_LT(relative_error(norms.squares_nB[1], square(a) * square(g)), 1e-14);
    EXPECT_LT(relative_error(norms.squares_nB[0],
                             at::bmm(wide_g.transpose(1, 2), wide_a).flatten(1).square().sum(1)),
              1e-5);
  }
  const at::Tensor factors = at::tensor({0.3, 1.0, 0.0, 1e-9, 0.7}, at::kDouble);
  privacy::add_clipped({{&head, a.unsqueeze(1), g.unsqueeze(1)}}, factors);
  const at::Tensor want = (g.to(at::kDouble) * factors.unsqueeze(1)).t().mm(a.to(at::kDouble));
  EXPECT_LT(relative_error(weight.grad, want), 1e-6);
}

// The cross term of a tied head, all samples together and as many positions as there is room for.
TEST(JoinedParts, OfATiedHeadHaveTheirCrossTerm) {
  models::Parameter weight;
  models::ParamLayer head, table;
  head.weight = table.weight = &weight;
  table.kind = models::kinds::kEmbedding;
  table.padding_id = 3;
  for (const auto& [samples, positions] : {std::pair<int64_t, int64_t>{3, 40}, {1, 5300}}) {
    weight.value = at::zeros({11, 8});
    const at::Tensor a = at::randn({samples, positions, 8}), e = at::randn({samples, positions, 8});
    const at::Tensor g = at::randn({samples, positions, 11});
    const at::Tensor ids = at::randint(11, {samples, positions}, at::kLong);
    const at::Tensor want = privacy::cross_products(head, a, g, table, ids, e);
    const privacy::JoinedByReferences joined;
    EXPECT_LT(relative_error(privacy::cross_products(head, a, g, table, ids, e), want), 1e-5);
    EXPECT_LT(relative_error(privacy::cross_products(table, ids, e, head, a, g), want), 1e-5);
  }
}

}  // namespace
}  // namespace moonshard
