// Overhead on plain rows: partners, the baseline's own row, what is not known. Lua's answers on the
// same functions are in tests/scripts/analyze_spec.lua, the viewer's in tests/viewer/data.
#include "runtime/analysis/overhead.h"

#include <gtest/gtest.h>

namespace moonshard::analysis {
namespace {

using Names = std::vector<std::string>;

Row cost_row(const std::string& mode, double length, double ms, double mib,
             const std::string& status = "ok") {
  Row row;
  row.label = mode + " " + text_of(length);
  row.status = status;
  row.values = {mode, length};
  row.metrics.median_time_ms = ms;
  row.metrics.peak_memory_mb = mib;
  return row;
}

Table cost_table(std::vector<Row> rows) {
  return {{"mode", "seq_length"}, {"mode", "seq_length"}, std::move(rows)};
}

const AxisBaseline kPlain{"mode", "none", "none"};

TEST(AnalysisOverhead, ComparesWithThePointOfTheSameOtherOptions) {
  const Table table = cost_table({cost_row("none", 64, 10, 100), cost_row("flash", 64, 15, 150),
                                  cost_row("flash", 128, 30, 300)});
  const std::vector<Overhead> found = overheads_on_axis({table}, kPlain)[0];
  EXPECT_DOUBLE_EQ(found[1].time_ratio, 1.5);
  EXPECT_DOUBLE_EQ(found[1].time_percent(), 50);
  EXPECT_DOUBLE_EQ(found[1].memory_bytes, 50 * kMiB);
  EXPECT_DOUBLE_EQ(found[1].memory_percent, 50);
  EXPECT_EQ(found[1].partner, (Place{0, 0}));
  EXPECT_FALSE(found[1].is_baseline);
  EXPECT_FALSE(found[2].partner);
  EXPECT_EQ(found[2].why_none, "no point with mode = none and the same other options");
}

TEST(AnalysisOverhead, WhoHasNoPartnerTakesOneThatOptionsOnTheSideAloneTellApart) {
  const auto row = [](const std::string& mode, double length, const char* side, double ms) {
    Row made = cost_row(mode, length, ms, 100);
    made.values.emplace_back(std::string(side));
    return made;
  };
  const auto found_with = [&](const std::string& side) {
    const Names axes = {"mode", "seq_length", side};
    return overheads_on_axis({Table{axes,
                                    axes,
                                    {row("none", 64, "0", 10), row("auto", 64, "512", 15),
                                     row("auto", 128, "512", 30), row("none", 64, "512", 20)}}},
                             kPlain)[0];
  };
  // Its own engine's budget: plain training does not read it. The exact partner comes first.
  EXPECT_EQ(found_with("memory_budget_mb")[1].partner, (Place{0, 3}));
  EXPECT_FALSE(found_with("memory_budget_mb")[2].partner) << "another length is another training";
  const auto alone = [&](const std::string& side) {
    const Names axes = {"mode", side};
    Row plain = cost_row("none", 64, 10, 100), other = cost_row("auto", 64, 15, 100);
    plain.values = {std::string("none"), 0.0};
    other.values = {std::string("auto"), 512.0};
    return overheads_on_axis({Table{axes, axes, {plain, other}}}, kPlain)[0][1].partner;
  };
  EXPECT_EQ(alone("memory_budget_mb"), (Place{0, 0}));
  EXPECT_EQ(alone("iters"), (Place{0, 0}));
  EXPECT_FALSE(alone("batch_size"));
}

TEST(AnalysisOverhead, OfTheBaselineItselfIsNothingAndMarked) {
  const Table table = cost_table({cost_row("none", 64, 10, 100), cost_row("none", 64, 12, 100),
                                  cost_row("none", 128, NAN, NAN, "oom")});
  const std::vector<Overhead> found = overheads_on_axis({table}, kPlain)[0];
  EXPECT_TRUE(found[0].is_baseline);
  EXPECT_EQ(found[0].time_ratio, 1);
  EXPECT_EQ(found[0].time_percent(), 0);
  EXPECT_EQ(found[0].memory_bytes, 0);
  EXPECT_EQ(found[0].memory_percent, 0);
  EXPECT_FALSE(found[1].is_baseline) << "the first of equal points is the baseline";
  EXPECT_DOUBLE_EQ(found[1].time_ratio, 1.2);
  EXPECT_TRUE(found[2].is_baseline) << "also where it has no figures";
  EXPECT_FALSE(found[2].baseline);
  EXPECT_EQ(found[2].why_none, "status oom: no figures to compare");
  const std::vector<Overhead> one = overheads_against({table}, Place{0, 1}, "")[0];
  EXPECT_TRUE(one[1].is_baseline);
  EXPECT_EQ(one[1].time_ratio, 1);
  EXPECT_FALSE(one[0].is_baseline);
}

TEST(AnalysisOverhead, AFailedBaselineIsAPartnerButNoBaseline) {
  const Table table =
      cost_table({cost_row("none", 64, NAN, NAN, "failed"), cost_row("flash", 64, 15, 150)});
  const Overhead found = overheads_on_axis({table}, kPlain)[0][1];
  EXPECT_EQ(found.partner, (Place{0, 0}));
  EXPECT_FALSE(found.baseline);
  EXPECT_EQ(found.why_none, "its baseline, point none 64, has status failed");
  EXPECT_TRUE(std::isnan(found.time_ratio));
}

TEST(AnalysisOverhead, ComparesTheSameFigureOfBoth) {
  Row median = cost_row("none", 64, 10, NAN), mean = cost_row("flash", 64, NAN, NAN);
  mean.metrics.avg_time_ms = 30;
  EXPECT_TRUE(std::isnan(overheads_on_axis({cost_table({median, mean})}, kPlain)[0][1].time_ratio))
      << "a median is not compared with a mean";
  median.metrics.avg_time_ms = 12;
  EXPECT_DOUBLE_EQ(overheads_on_axis({cost_table({median, mean})}, kPlain)[0][1].time_ratio, 2.5);
  mean.metrics.samples_per_s = 3;
  median.metrics.samples_per_s = 6;
  EXPECT_DOUBLE_EQ(overheads_on_axis({cost_table({median, mean})}, kPlain)[0][1].throughput_ratio,
                   0.5);
}

TEST(AnalysisOverhead, WordsMeanTheValuesTheyName) {
  EXPECT_TRUE(is_asked(512.0, std::string("512")));
  EXPECT_TRUE(is_asked(1e-5, std::string("1e-05")));
  EXPECT_FALSE(is_asked(512.0, std::string("512 tokens")));
  EXPECT_TRUE(is_asked(true, std::string("yes")));
  EXPECT_TRUE(is_asked(false, std::string("false")));
  EXPECT_FALSE(is_asked(Value(), Value()));
  EXPECT_FALSE(is_asked(std::string("1"), 1.0));
  EXPECT_EQ(text_of(1.0 / 3), "0.33333333333333");
  EXPECT_EQ(text_of(Value()), "nil");
}

TEST(AnalysisRows, OwnersAndPhasesStandInTheOrderOfTheStep) {
  EXPECT_EQ(owners_in_order({"rest", "mine", "activations", "parameters", "mine"}),
            (std::vector<std::string>{"parameters", "activations", "mine", "rest"}));
  EXPECT_EQ(phases_in_order({"update", "mine", "forward", "data"}),
            (std::vector<std::string>{"data", "forward", "update", "mine"}));
  EXPECT_TRUE(phases_in_order({}).empty());
}

}  // namespace
}  // namespace moonshard::analysis
