// ghost_norm where there is no GPU: the reference against gradients, the tiles counted one by one.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include <ATen/ATen.h>

#include "kernels/ghost_norm/ghost_norm.h"
#include "kernels/ghost_norm/ghost_norm_schedule.h"
#include "kernels/ghost_norm/ghost_norm_tiles.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

TEST(GhostNorm, EqualsTheNormOfTheGradient) {
  at::manual_seed(3);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor a = at::randn({3, 7, 16}, at::kDouble).to(type);
    const at::Tensor b = at::randn({3, 5, 8}, at::kDouble).to(type);
    const std::vector<GhostGroup> groups{
        {a,
         {at::randn({3, 7, 8}, at::kDouble).to(type), at::randn({3, 7, 5}, at::kDouble).to(type)}},
        {b, {at::randn({3, 5, 24}, at::kDouble).to(type)}}};
    const GhostSums sums = ghost_norm(groups);
    ASSERT_EQ(sums.value.sizes(), (std::vector<int64_t>{3, 3}));
    int64_t row = 0;
    for (const GhostGroup& group : groups) {
      for (const at::Tensor& g : group.g) {
        const at::Tensor gradient =
            at::bmm(g.to(at::kDouble).transpose(1, 2), group.a.to(at::kDouble));
        const at::Tensor want = gradient.square().sum({1, 2});
        // float32 sums of at most 24 products, compared by what they are sums of
        const double error =
            ((sums.value[row] - want).abs() / sums.magnitude[row]).max().item<double>();
        EXPECT_LT(error, type == at::kDouble ? 1e-14 : 1e-6) << c10::toString(type);
        EXPECT_TRUE((sums.magnitude[row] >= sums.value[row].abs()).all().item<bool>());
        ++row;
      }
    }
  }
}

TEST(GhostNorm, OneSampleDoesNotReachAnother) {
  at::Tensor a = at::randn({3, 6, 8}), g = at::randn({3, 6, 8});
  const GhostSums clean = ghost_norm({{a, {g}}});
  a[1][2][3] = NAN;
  const GhostSums spoiled = ghost_norm({{a, {g}}});
  EXPECT_TRUE(spoiled.value[0][1].isnan().item<bool>());
  for (const int64_t b : {0, 2})
    EXPECT_EQ(spoiled.value[0][b].item<double>(), clean.value[0][b].item<double>());
}

TEST(GhostNorm, NoPositionsHaveNoNorm) {
  const GhostSums sums = ghost_norm({{at::ones({2, 0, 8}), {at::ones({2, 0, 16})}}});
  EXPECT_EQ(sums.value.sum().item<double>(), 0);
  EXPECT_EQ(sums.magnitude.numel(), 2);
}

TEST(GhostNorm, SaysWhatDoesNotFit) {
  EXPECT_THROW(ghost_norm({}), UsageError);
  EXPECT_THROW(ghost_norm({{at::ones({2, 3, 8}), {at::ones({2, 4, 8})}}}), UsageError);
  EXPECT_THROW(ghost_norm({{at::ones({2, 3, 8}), {at::ones({2, 3, 8}).to(at::kBFloat16)}}}),
               UsageError);
}

TEST(GhostNorm, TheKernelTakesWhatTheCopyEngineTakes) {
  const auto like = at::TensorOptions().dtype(at::kBFloat16);
  const at::Tensor a = at::ones({2, 3, 16}, like), g = at::ones({2, 3, 24}, like);
  EXPECT_TRUE(ghost_norm_supports({a, {g}}));
  EXPECT_TRUE(ghost_norm_supports({a, {at::ones({2, 3, 48}, like).narrow(2, 8, 24)}}));
  EXPECT_FALSE(ghost_norm_supports({a, {at::ones({2, 3, 48}, like).narrow(2, 4, 24)}}));
  EXPECT_FALSE(ghost_norm_supports({a, {at::ones({2, 3, 20}, like)}}));
  EXPECT_FALSE(ghost_norm_supports({a, {at::ones({2, 24, 3}, like).transpose(1, 2)}}));
  EXPECT_FALSE(ghost_norm_supports({a, {at::ones({2, 1, 24}, like).expand({2, 3, 24})}}));
  EXPECT_FALSE(ghost_norm_supports({a.to(at::kFloat), {g.to(at::kFloat)}}));
}

TEST(GhostNorm, EveryTileIsTakenOnce) {
  for (const int samples : {1, 2, 3, 5}) {
    for (int n = 1; n <= 12; ++n) {
      const GhostTileGrid grid{samples, n};
      std::map<std::tuple<int, int, int>, int> taken;  // (sample, row, column)
      std::set<std::pair<int, int>> slots;             // (sample, slot)
      for (int item = 0; item < grid.items(); ++item) {
        const GhostTile one = ghost_tile(grid, item, 0), two = ghost_tile(grid, item, 1);
        ASSERT_TRUE(one.real);
        ASSERT_EQ(one.joined, two.joined);
        if (one.joined) {  // the column's operand is fetched once for both
          ASSERT_EQ(one.column, two.column);
          ASSERT_EQ(one.sample, two.sample);
        }
        for (const GhostTile& tile : {one, two}) {
          ASSERT_LE(tile.column, tile.row);
          ASSERT_LT(tile.row, n);
          ASSERT_LT(tile.slot, grid.tiles());
          if (!tile.real) continue;
          ++taken[{tile.sample, tile.row, tile.column}];
          ASSERT_TRUE(slots.emplace(tile.sample, tile.slot).second);
        }
      }
      EXPECT_EQ(taken.size(), static_cast<size_t>(samples * grid.tiles()));
      for (const auto& [tile, times] : taken) EXPECT_EQ(times, 1);
    }
  }
}

TEST(GhostNorm, RootsOfLargePairNumbersAreExact) {
  const GhostTileGrid grid{1, 2 * 8191};
  for (const int m : {1, 2048, 4095, 4096, 5793, 8190}) {
    EXPECT_EQ(ghost_tile(grid, m * m, 0).row, 2 * m);
    EXPECT_EQ(ghost_tile(grid, m * m, 0).column, 0);
    EXPECT_EQ(ghost_tile(grid, m * m - 1, 1).row, 2 * m - 1);
    EXPECT_EQ(ghost_tile(grid, m * m - 1, 1).column, 2 * m - 2);
  }
}

TEST(GhostNorm, TheScheduleIsEvenAndWhole) {
  // A Llama-8B block at B = 2, T = 1024 on 66 clusters: widths over 64, 36 pairs of tiles each.
  const std::vector<int64_t> costs{512, 288, 160, 128}, counts{36, 36, 36, 36};
  const auto schedule = ghost_schedule(costs, counts, 66);
  std::vector<int> seen(144);
  int64_t longest = 0;
  for (size_t c = 0; c < 66; ++c) {
    int64_t load = 0;
    for (size_t i = schedule->first[c]; i < schedule->first[c + 1]; ++i) {
      ++seen[schedule->items[i]];
      load += costs[schedule->items[i] / 36u];
    }
    longest = std::max(longest, load);
  }
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 144);
  EXPECT_EQ(*std::min_element(seen.begin(), seen.end()), 1);
  // The mean is 593: within a tenth of it.
  EXPECT_LE(longest, 653);
  EXPECT_EQ(schedule, ghost_schedule(costs, counts, 66)) << "kept";
}

TEST(GhostNorm, ALayerByItselfIsCutWhereItsLastRoundWouldBeNearlyEmpty) {
  // The head of Llama 3.2 1B, 8 samples of 1,024 positions: 144 pairs of tiles are three rounds of
  // 66, in slices eleven of a fifth: 11 x 433 stages, not 3 x 2,036.
  const auto rounds = [](int slices) { return (144 * slices + 65) / 66; };
  const int slices = ghost_slices(144, 32, 2004, 66);
  EXPECT_GT(slices, 1);
  EXPECT_LE(rounds(slices) * (32 + 2004 / slices), 0.81 * rounds(1) * (32 + 2004));
  EXPECT_EQ(ghost_slices(66, 32, 2004, 66), 1) << "one full round: nothing to gain";
  EXPECT_EQ(ghost_slices(144, 2004, 32, 66), 1) << "forming a again costs more";
  EXPECT_EQ(ghost_slices(1, 32, 1, 66), 1) << "one block of columns";
  EXPECT_LE(ghost_slices(1, 0, 1 << 20, 66), kMostGhostSlices);
}

TEST(GhostNorm, GroupsAreCutIntoLaunchesInOrderAndStayWhole) {
  std::vector<GhostGroupView> groups(9);
  for (size_t k = 0; k < groups.size(); ++k) groups[k].g.resize(1 + k % 3);
  const auto batches = ghost_batches(groups, 4, 8);
  size_t next = 0;
  for (const auto& batch : batches) {
    ASSERT_FALSE(batch.empty());
    EXPECT_LE(batch.size(), 4u);
    size_t tensors = 0;
    for (const GhostGroupView* group : batch) {
      EXPECT_EQ(group, &groups[next++]);
      tensors += 1 + group->g.size();
    }
    EXPECT_LE(tensors, 8u);
  }
  EXPECT_EQ(next, groups.size());
  EXPECT_TRUE(ghost_batches({}, 4, 8).empty());
  groups[5].g.resize(kMostGhostLayers + 1);
  EXPECT_THROW(ghost_batches(groups, 4, 8), std::runtime_error);
}

}  // namespace
}  // namespace moonshard::kernels
