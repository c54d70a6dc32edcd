// Cutting parameters into parts: every element is kept by exactly one rank, however uneven.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/sharding/unit.h"

namespace moonshard::sharding {
namespace {

std::vector<std::unique_ptr<models::Parameter>> parameters_of(
    const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<std::unique_ptr<models::Parameter>> list;
  for (const auto& shape : shapes) {
    auto parameter = std::make_unique<models::Parameter>();
    parameter->name = "p" + std::to_string(list.size());
    parameter->index = static_cast<uint32_t>(list.size());
    parameter->value = at::empty(shape, at::TensorOptions().device(c10::kMeta));
    list.push_back(std::move(parameter));
  }
  return list;
}

TEST(FlatLayout, EveryElementBelongsToOneRankForAnySizesAndWorlds) {
  const std::vector<std::vector<std::vector<int64_t>>> cases{
      {{1}}, {{7, 3}, {5}, {1}, {129, 2}}, {{64}, {64}, {64}}, {{1000, 3}, {2}}, {{0, 4}, {3}}};
  for (const auto& shapes : cases) {
    for (const int world : {1, 2, 3, 4, 5, 8, 13}) {
      const auto owned = parameters_of(shapes);
      std::vector<models::Parameter*> list;
      for (const auto& parameter : owned) list.push_back(parameter.get());
      std::vector<std::vector<int>> keepers(shapes.size());
      for (size_t i = 0; i < shapes.size(); ++i)
        keepers[i].assign(static_cast<size_t>(owned[i]->value.numel()), 0);
      int64_t shard_size = -1;
      for (int rank = 0; rank < world; ++rank) {
        const FlatLayout layout(list, rank, world);
        if (rank > 0) {
          EXPECT_EQ(layout.shard_size, shard_size) << "ranks disagree";
        }
        shard_size = layout.shard_size;
        for (size_t i = 0; i < layout.pieces.size(); ++i) {
          const Piece& piece = layout.pieces[i];
          ASSERT_GE(piece.count, 0);
          for (int64_t e = 0; e < piece.count; ++e)
            ++keepers[i][static_cast<size_t>(piece.first + e)];
        }
      }
      for (const auto& counts : keepers)
        for (const int count : counts) ASSERT_EQ(count, 1) << "world " << world;
    }
  }
}

TEST(FlatLayout, OwnViewsOfAllRanksPutTogetherAreTheWhole) {
  const auto owned = parameters_of({{7, 13}, {3}, {50, 11}});
  std::vector<models::Parameter*> list;
  for (const auto& parameter : owned) list.push_back(parameter.get());
  for (const int world : {2, 3, 5}) {
    const FlatLayout any(list, 0, world);
    const at::Tensor row = at::arange(any.padded(), at::kDouble);
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor whole = FlatLayout::whole_view(row, any.pieces[i]).flatten();
      at::Tensor put_together = at::full_like(whole, -1);
      for (int rank = 0; rank < world; ++rank) {
        const FlatLayout layout(list, rank, world);
        const at::Tensor part = row.narrow(0, layout.shard_size * rank, layout.shard_size);
        const Piece& piece = layout.pieces[i];
        put_together.narrow(0, piece.first, piece.count).copy_(layout.own_view(part, piece));
      }
      EXPECT_TRUE(at::equal(put_together, whole)) << "parameter " << i << ", world " << world;
    }
  }
}

TEST(FlatLayout, ShortRowsLeaveTheLastRanksWithPaddingOnly) {
  const auto owned = parameters_of({{3}, {2}});
  std::vector<models::Parameter*> list{owned[0].get(), owned[1].get()};
  const FlatLayout last(list, 4, 5);
  EXPECT_GT(last.shard_size, 0);
  for (const Piece& piece : last.pieces) EXPECT_EQ(piece.count, 0);
}

TEST(FlatLayout, GapsAreClearedAndNothingElse) {
  const auto owned = parameters_of({{3}, {70}});
  std::vector<models::Parameter*> list{owned[0].get(), owned[1].get()};
  const FlatLayout layout(list, 0, 2);
  at::Tensor row = at::ones({layout.padded()});
  layout.clear_gaps(row);
  EXPECT_EQ(row.sum().item<double>(), 73);
  EXPECT_EQ(FlatLayout::whole_view(row, layout.pieces[1]).sum().item<double>(), 70);
}

}  // namespace
}  // namespace moonshard::sharding
