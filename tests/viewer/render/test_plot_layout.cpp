// What becomes of a spec before anything is drawn.
#include "viewer/render/plot_layout.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "tests/viewer/sample_run.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

records::PlotSpec lines_spec(std::vector<double> x, std::vector<std::optional<double>> y) {
  records::PlotSpec spec;
  records::PlotPanel panel;
  panel.kind = PlotKind::Lines;
  panel.series.push_back({"s", std::move(x), std::move(y), {}, {}});
  spec.panels.push_back(panel);
  return spec;
}

TEST(PlotLayout, KeepsPointsWithoutAFigureAsMissing) {
  const PreparedPlot plot = prepare_plot(sample_plot());
  const PreparedSeries& ghost = plot.panels[0].series[1];
  EXPECT_EQ(ghost.y, std::vector<double>{15.0});
  ASSERT_EQ(ghost.missing.size(), 1u);
  EXPECT_EQ(ghost.missing[0].text, "oom");
  EXPECT_EQ(ghost.missing[0].source, 1u);
}

TEST(PlotLayout, CallsAMissingPointWithoutStatusNoValue) {
  const PreparedPlot plot = prepare_plot(lines_spec({1, 2}, {1.0, std::nullopt}));
  EXPECT_EQ(plot.panels[0].series[0].missing.at(0).text, "no value");
}

TEST(PlotLayout, PutsBarsOfOneCategorySideBySide) {
  const PreparedPanel panel = prepare_plot(sample_plot()).panels[0];
  EXPECT_NEAR(panel.series[1].x[0] - panel.series[0].x[0], panel.bar_width, 1e-12);
  EXPECT_LT(panel.bar_width * 2, 1.0);
  EXPECT_DOUBLE_EQ(panel.y_range.min, 0.0);
}

TEST(PlotLayout, GivesBarsOverNumbersOneCategoryEach) {
  records::PlotSpec spec = lines_spec({2048, 64, 512}, {1.0, 2.0, 3.0});
  spec.panels[0].kind = PlotKind::Bars;
  const PreparedPanel panel = prepare_plot(spec).panels[0];
  EXPECT_EQ(panel.categories, (std::vector<std::string>{"64", "512", "2048"}));
  EXPECT_DOUBLE_EQ(panel.series[0].x[0], 2.0);
}

TEST(PlotLayout, MarksValuesALogAxisCannotShow) {
  records::PlotSpec spec = lines_spec({1, 2, 3}, {0.0, -1.0, 10.0});
  spec.panels[0].y.log_scale = true;
  const PreparedPanel panel = prepare_plot(spec).panels[0];
  EXPECT_EQ(panel.series[0].y.size(), 1u);
  EXPECT_EQ(panel.series[0].missing.size(), 2u);
  EXPECT_GT(panel.y_range.min, 0.0);
}

TEST(PlotLayout, SurvivesExtremeAndEqualNumbers) {
  const std::vector<std::vector<std::optional<double>>> cases = {
      {1e308, -1e308}, {5e-324, 5e-324}, {1e16, 1e16 + 2}, {0.0, 0.0}, {-7.0, -7.0}};
  for (const auto& y : cases) {
    for (const PlotKind kind : {PlotKind::Bars, PlotKind::Lines, PlotKind::Scatter}) {
      records::PlotSpec spec = lines_spec({1e308, 1e308}, y);
      spec.panels[0].kind = kind;
      const PreparedPanel panel = prepare_plot(spec).panels[0];
      for (const Range& range : {panel.x_range, panel.y_range}) {
        EXPECT_TRUE(std::isfinite(range.size()));
        EXPECT_GT(range.size(), 0.0);
        const double largest = std::max(std::abs(range.min), std::abs(range.max));
        EXPECT_GE(range.size(), largest * 1e-10);  // ticks can still step
      }
    }
  }
}

TEST(PlotLayout, SharesOneLegendOnlyBetweenEqualPanels) {
  records::PlotSpec spec = sample_plot();
  spec.panels.push_back(spec.panels[0]);
  EXPECT_TRUE(prepare_plot(spec).shared_legend);
  spec.panels[1].series[1].name = "flash";
  EXPECT_FALSE(prepare_plot(spec).shared_legend);
}

TEST(PlotLayout, LeavesTheAskedRoomAboveTheData) {
  const Range linear = with_room_above({0, 80}, 100, 20, false);
  EXPECT_NEAR(linear.max, 100.0, 1e-9);
  const Range log = with_room_above({1, 100}, 100, 20, true);
  EXPECT_NEAR(std::log10(log.max), 2.5, 1e-9);
}

TEST(PlotLayout, LeavesTheSameRoomOverAndUnderBarsThatGoBothWays) {
  const Range range = with_room_around({-30, 10}, 100, 30);
  EXPECT_NEAR(range.min, -60, 1e-9);
  EXPECT_NEAR(range.max, 40, 1e-9);
  EXPECT_GT(with_room_around({-1, 1}, 10, 1000).size(), 2) << "no room at all is no reason to fail";
}

TEST(PlotLayout, ASelectedStackIsMarkedOnceFromFootToTop) {
  records::PlotSpec spec;
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedBars;
  panel.x.categories = {"a", "b"};
  panel.series.resize(3);
  const double heights[] = {2, 3, 5};
  for (size_t s = 0; s < 3; ++s) {
    panel.series[s].name = std::to_string(s);
    panel.series[s].x = {0, 1};
    panel.series[s].y = {heights[s], std::nullopt};
    panel.series[s].status = {"ok", "oom"};
  }
  spec.panels.push_back(panel);
  const PreparedPanel prepared = prepare_plot(spec).panels[0];
  const std::vector<PanelHit> hits = {{0, 0}, {1, 0}, {2, 0}};
  const std::vector<MarkedStack> all = marked_stacks(prepared, hits, {});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].low, 0);
  EXPECT_EQ(all[0].high, 10);
  const std::vector<MarkedStack> some = marked_stacks(prepared, hits, {"1"});
  ASSERT_EQ(some.size(), 1u);
  EXPECT_EQ(some[0].high, 7) << "a part that is switched off has no height";
  EXPECT_TRUE(marked_stacks(prepared, {{0, 1}, {9, 9}}, {}).empty()) << "no figure, no such series";
}

TEST(PlotLayout, UsesFewDistinctXValuesAsTicks) {
  EXPECT_EQ(prepare_plot(lines_spec({64, 128}, {1.0, 2.0})).panels[0].x_ticks.size(), 2u);
  std::vector<double> x(300);
  std::vector<std::optional<double>> y(300, 1.0);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const PreparedPanel dense = prepare_plot(lines_spec(x, y)).panels[0];
  EXPECT_TRUE(dense.x_ticks.empty());
  EXPECT_FALSE(dense.markers);
}

TEST(PlotLayout, BarsCloseUpWhereASeriesIsAbsent) {
  records::PlotSpec spec;
  records::PlotPanel panel;
  panel.x.categories = {"a", "b", "c"};
  panel.series.push_back({"s", {0}, {1.0}});
  panel.series.push_back({"t", {1}, {2.0}});
  panel.series.push_back({"u", {2}, {std::nullopt}, {}, {"oom"}});
  spec.panels.push_back(panel);
  const PreparedPanel single = prepare_plot(spec).panels[0];
  EXPECT_GT(single.bar_width, 0.4) << "one bar in each category, not a third of it";
  EXPECT_DOUBLE_EQ(single.series[1].x[0], 1.0);
  EXPECT_DOUBLE_EQ(single.series[2].missing[0].x, 2.0);
  spec.panels[0].series[0] = {"s", {0, 1}, {1.0, 1.0}};
  const PreparedPanel pair = prepare_plot(spec).panels[0];
  EXPECT_NEAR(pair.series[1].x[0] - pair.series[0].x[1], pair.bar_width, 1e-12);
  EXPECT_DOUBLE_EQ(pair.series[0].x[0], 0.0) << "alone in its category";
}

TEST(PlotLayout, HeatMapsOfOneFigureShareAScale) {
  records::PlotSpec spec;
  for (const double value : {10.0, 500.0}) {
    records::PlotPanel panel;
    panel.kind = PlotKind::HeatMap;
    panel.x.categories = {"a", "b"};
    panel.value = {"speed", "tokens/s"};
    panel.series.push_back({"row", {0, 1}, {value, 2 * value}});
    spec.panels.push_back(panel);
  }
  PreparedPlot plot = prepare_plot(spec);
  for (const PreparedPanel& panel : plot.panels) {
    EXPECT_EQ(panel.value_range.min, 10);
    EXPECT_EQ(panel.value_range.max, 1000);
  }
  spec.panels[1].value.label = "something else";
  plot = prepare_plot(spec);
  EXPECT_EQ(plot.panels[0].value_range.max, 20);
}

TEST(PlotLayout, AxesOfAmountsBeginAtZeroUnlessTheSpecSaysOtherwise) {
  records::PlotSpec spec = lines_spec({1, 2}, {9.04, 9.09});
  EXPECT_EQ(prepare_plot(spec).panels[0].y_range.min, 0);
  spec.panels[0].kind = PlotKind::Scatter;
  EXPECT_EQ(prepare_plot(spec).panels[0].x_range.min, 0);
  EXPECT_GT(prepare_plot(spec).panels[0].x_range.max, 2.05) << "marks at the edge stay whole";
  spec.panels[0].y.min = 9.0;
  EXPECT_EQ(prepare_plot(spec).panels[0].y_range.min, 9);
  EXPECT_LT(prepare_plot(lines_spec({1, 2}, {-1.0, 3.0})).panels[0].y_range.min, -1);
}

TEST(PlotLayout, TwoThingsNeverShareAColourInOnePicture) {
  records::PlotSpec spec;
  records::PlotPanel panel;
  panel.kind = PlotKind::StackedBars;
  panel.x.categories = {"a"};
  for (const char* name : {"ghost", "zero3", "fsdp", "zero2", "ddp", "update", "optimizer", "norms",
                           "noise", "none"}) {
    panel.series.push_back({name, {0}, {1.0}});
  }
  spec.panels.push_back(panel);
  std::set<size_t> colors;
  const PreparedPlot plot = prepare_plot(spec);
  for (const PreparedSeries& series : plot.panels[0].series) {
    EXPECT_TRUE(colors.insert(series.color).second) << series.name;
  }
}

TEST(PlotLayout, ALegendNamesOnlyWhatCanBeSeen) {
  records::PlotSpec spec;
  records::PlotPanel panel;
  panel.kind = PlotKind::StackedBars;
  panel.x.categories = {"a", "b"};
  panel.series.push_back({"large", {0, 1}, {100.0, 90.0}});
  panel.series.push_back({"sliver", {0, 1}, {0.05, 0.1}});
  panel.series.push_back({"small", {0, 1}, {0.0, 2.0}});
  spec.panels.push_back(panel);
  std::vector<std::string> names;
  for (const LegendEntry& entry : prepare_plot(spec).legend.entries) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"large", "small"}));
}

}  // namespace
}  // namespace moonshard::viewer
