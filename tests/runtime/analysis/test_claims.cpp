// Verdicts on claims and trade-offs, with the figures they print.
#include "runtime/analysis/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moonshard::analysis {
namespace {

using testing::ElementsAre;

Row claim_row(const std::string& mode, double length, const std::string& status = "ok") {
  Row row;
  row.status = status;
  row.mode = mode;
  row.values = {mode, length};
  row.shown = {mode, text_of(length)};
  return row;
}

TEST(AnalysisClaims, PairsDifferInOneAxisOnly) {
  const Table table{{"mode", "seq_length"},
                    {"mode", "seq_length"},
                    {claim_row("none", 64), claim_row("flash", 64), claim_row("none", 128),
                     claim_row("flash", 128, "oom"), claim_row("flash", 256)}};
  const std::vector<Pair> pairs =
      pairs_on_axis(table, "mode", std::string("flash"), std::string("none"));
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].of, 1u);
  EXPECT_EQ(pairs[0].to, 0u);
  EXPECT_EQ(pairs[0].at, "seq_length 64");
}

TEST(AnalysisClaims, RatiosMustAllLieWithinBounds) {
  const std::vector<PairFigures> pairs = {{20, 10, "seq_length 64"}, {30, 10, "seq_length 128"}};
  RatioClaim claim{"flash", "none", {1, std::nullopt}};
  EXPECT_EQ(judge_ratio(claim, pairs).holds, true);
  EXPECT_EQ(judge_ratio(claim, pairs).figures,
            "flash / none: 2x at seq_length 64, 3x at seq_length 128");
  claim.bounds = {std::nullopt, 2.5};
  EXPECT_EQ(judge_ratio(claim, pairs).holds, false);
  claim.bounds = {2.5, std::nullopt};
  claim.only_last = true;
  EXPECT_EQ(judge_ratio(claim, pairs).holds, true);
  EXPECT_EQ(judge_ratio(claim, {{30, 10, ""}, {20, 10, ""}, {NAN, 10, ""}}).holds, false)
      << "the last that was measured";
  EXPECT_EQ(judge_ratio(claim, {{NAN, 10, ""}, {20, 0, ""}}).holds, std::nullopt);
  EXPECT_EQ(judge_ratio(claim, {}).figures, "no pair of flash and none has the figure");
}

TEST(AnalysisClaims, MoreAndLessMeanNoticeably) {
  const RatioClaim more{"a", "b", {1, std::nullopt}}, less{"a", "b", {std::nullopt, 1}};
  EXPECT_EQ(judge_ratio(more, {{1.004, 1, ""}}).holds, false);
  EXPECT_EQ(judge_ratio(more, {{1.006, 1, ""}}).holds, true);
  EXPECT_EQ(judge_ratio(less, {{0.996, 1, ""}}).holds, false);
  EXPECT_EQ(judge_ratio(less, {{0.994, 1, ""}}).holds, true);
}

TEST(AnalysisClaims, ManyPairsAreARange) {
  std::vector<PairFigures> pairs;
  for (int i = 1; i <= 7; ++i) pairs.push_back({static_cast<double>(i), 1, "at"});
  EXPECT_EQ(judge_ratio({"a", "b", {}}, pairs).figures, "a / b: 1x … 7x in 7 pairs");
}

TEST(AnalysisClaims, BoundsHoldForEveryFigureThatWasMeasured) {
  EXPECT_EQ(judge_bound({10, NAN, 30}, {10, 30}, "ms").holds, true);
  EXPECT_EQ(judge_bound({10, NAN, 30}, {10, 30}, "ms").figures, "10 … 30 ms over 2 points");
  EXPECT_EQ(judge_bound({10, 30}, {std::nullopt, 29}, "").holds, false);
  EXPECT_EQ(judge_bound({NAN}, {1, 2}, "").holds, std::nullopt);
}

TEST(AnalysisClaims, GrowthIsJudgedByTheVerdictsOfTheFits) {
  Table table{{"mode", "seq_length"}, {"mode", "seq_length"}, {}};
  for (const double length : {64, 128, 256, 512}) {
    for (const char* mode : {"flash", "ghost"}) {
      table.rows.push_back(claim_row(mode, length));
      table.rows.back().metrics.min_time_ms =
          mode == std::string("flash") ? length : length * length;
    }
  }
  GrowthClaim claim{"seq_length", "step", "flash", {"O(T)"}};
  EXPECT_EQ(judge_growth(claim, table).holds, true);
  EXPECT_THAT(judge_growth(claim, table).figures,
              testing::StartsWith("flash: T^1.00, O(T); a + b"));
  claim.mode = "ghost";
  EXPECT_EQ(judge_growth(claim, table).holds, false);
  claim.mode = "";
  EXPECT_EQ(judge_growth(claim, table).holds, false) << "of all of them";
  claim.quantity = "forward";
  EXPECT_EQ(judge_growth(claim, table).figures, "fewer than two lengths have the figure");
}

TEST(AnalysisTradeoff, EfficientPointsAreBeatenByNone) {
  EXPECT_THAT(efficient({{1, 9}, {2, 5}, {3, 5}, {2, 6}, {9, 1}, {NAN, 0}, {2, 5}}),
              ElementsAre(true, true, false, false, true, false, true));
  EXPECT_TRUE(efficient({}).empty());
}

TEST(AnalysisTradeoff, TheBestHasTheSmallestProduct) {
  const std::vector<NamedCost> costs = {{"ghost", {2, 1}}, {"flash", {1.5, 1.1}}};
  EXPECT_EQ(judge_tradeoff("flash", costs).holds, true);
  EXPECT_EQ(judge_tradeoff("ghost", costs).holds, false);
  EXPECT_EQ(judge_tradeoff("ghost", costs).figures,
            "smallest time x memory: flash (ghost 2.00x time, 1.00x memory; flash 1.50x time, "
            "1.10x memory)");
  EXPECT_EQ(judge_tradeoff("ghost", {{"ghost", {}}}).holds, std::nullopt);
}

}  // namespace
}  // namespace moonshard::analysis
