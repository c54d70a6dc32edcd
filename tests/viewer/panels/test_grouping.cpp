// What colours, facets and labels follow: whatever varies among the points that are shown.
#include "viewer/panels/grouping.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/viewer/grid_run.h"
#include "tests/viewer/sample_run.h"
#include "viewer/panels/chart_panel.h"

namespace moonshard::viewer {
namespace {

class Grouping : public ::testing::Test {
 protected:
  void open(const std::vector<std::filesystem::path>& folders) {
    Document document(folders);
    document.load_now();
    workspace_.update(document.snapshot());
  }
  std::set<std::string> colors(const std::string& by = kByItself) const {
    const auto names = color_points(workspace_, workspace_.shown(), by).names;
    return {names.begin(), names.end()};
  }
  using Names = std::set<std::string>;

  TemporaryFolder root_;
  Workspace workspace_;
};

TEST_F(Grouping, ColoursFollowTheEngineOrWhatElseIsCompared) {
  open({make_engine_grid(root_.path())});
  EXPECT_EQ(colors(), (Names{"none", "ghost", "flash"}));
  open({make_sharding_grid(root_.path() / "other")});
  EXPECT_EQ(colors(), (Names{"zero2", "zero3"})) << "all are one engine";
  EXPECT_EQ(colors("batch_size"), (Names{"batch 2", "batch 4", "batch 8", "batch 16"}));
  EXPECT_EQ(colors(kByNothing), Names{""});
}

TEST_F(Grouping, EachRunHasItsOwnColoursAndEnginesOneName) {
  std::vector<GridPoint> points;
  for (const char* mode : {"vanilla", "flash_clip"}) points.push_back({{{"mode", mode}}});
  open({make_engine_grid(root_.path()), make_sharding_grid(root_.path()),
        make_grid_run(root_.path(), "dit", {"mode"}, points)});
  EXPECT_EQ(colors(), (Names{"none", "ghost", "flash", "zero2", "zero3"}));
  EXPECT_EQ(colors(kByRun), (Names{"engines", "zero_compare", "dit"}));
}

TEST_F(Grouping, LabelsNameWhatDiffersInTheirOwnRun) {
  open({make_engine_grid(root_.path()), make_sharding_grid(root_.path())});
  const std::vector<std::string> labels = labels_without(workspace_, workspace_.shown(), {});
  EXPECT_EQ(labels.front(), "engines: none, 1024 tokens");
  EXPECT_EQ(labels.back(), "zero_compare: accum 4, zero3, batch 16");
  EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), labels.size());
  EXPECT_EQ(workspace_.short_name({1, 0}), "zero_compare: accum 1, zero2, batch 2");
  EXPECT_EQ(workspace_.words({0, 1}), "ghost, 1024 tokens");
}

TEST_F(Grouping, WhatFollowsFromTheModelIsNotRepeated) {
  std::vector<GridPoint> points;
  for (const auto& [model, layers] : {std::pair{"small", 12}, {"large", 48}}) {
    for (const char* mode : {"none", "ghost"}) {
      points.push_back({{{"model", model}, {"num_layers", layers}, {"mode", mode}}});
    }
  }
  open({make_grid_run(root_.path(), "models", {"model", "num_layers", "mode"}, points)});
  EXPECT_EQ(
      labels_without(workspace_, workspace_.shown(), {}),
      (std::vector<std::string>{"small, none", "small, ghost", "large, none", "large, ghost"}));
  size_t left_out = 0;
  const auto facets = facets_of(workspace_, workspace_.shown(), kByItself, 12, left_out);
  ASSERT_EQ(facets.size(), 2u) << "figures of two models do not belong on one scale";
  EXPECT_EQ(facets[0].title, "small");
  EXPECT_EQ(facets[1].points.size(), 2u);
}

TEST_F(Grouping, FacetsAreTheRunsAndTheirNumberIsBounded) {
  open({make_engine_grid(root_.path()), make_sharding_grid(root_.path())});
  size_t left_out = 0;
  auto facets = facets_of(workspace_, workspace_.shown(), kByItself, 12, left_out);
  ASSERT_EQ(facets.size(), 2u);
  EXPECT_EQ(facets[1].title, "zero_compare");
  facets = facets_of(workspace_, workspace_.shown(), "batch_size", 2, left_out);
  EXPECT_EQ(facets.size(), 2u);
  EXPECT_GT(left_out, 0u);
  EXPECT_EQ(facets_of(workspace_, workspace_.shown(), kByNothing, 12, left_out).size(), 1u);
}

TEST_F(Grouping, APointIsSelectedFirstThatHasMostToShow) {
  std::vector<GridPoint> points;
  for (const char* profile : {"phases", "trace", "phases"}) {
    for (const char* mode : {"none", "ghost"}) {
      points.push_back({{{"mode", mode}, {"profile", profile}, {"seed", points.size() / 2}}});
    }
  }
  points[0].status = "oom";
  open({make_grid_run(root_.path(), "run", {"mode", "profile", "seed"}, points)});
  workspace_.select_first();
  ASSERT_TRUE(workspace_.selected_point());
  EXPECT_EQ(workspace_.head(*workspace_.selected_point()).id, "p03") << "traced, and private";
}

TEST_F(Grouping, EverySweepIsComparedWithItsOwnBaseline) {
  open({make_engine_grid(root_.path()), make_sharding_grid(root_.path())});
  EXPECT_EQ(workspace_.baseline().kind, Baseline::Kind::Sweeps);
  EXPECT_NEAR(workspace_.overhead({0, 1}).time_ratio, 1.6, 1e-9);
  EXPECT_NEAR(workspace_.overhead({1, 4}).time_ratio, 1.01, 1e-9) << "zero3 against zero2";
  EXPECT_TRUE(workspace_.overhead({1, 0}).is_baseline);
}

TEST_F(Grouping, AModelledWorldIsNamedOnce) {
  open({make_engine_grid(root_.path()), make_sharding_grid(root_.path())});
  Chart chart;
  chart.spec.title = "Times";
  chart.refs = {{{{0, 0}, {0, 1}}}};
  name_modelled(workspace_, chart, false);
  EXPECT_EQ(chart.spec.title, "Times") << "all is measured";
  chart.refs[0].push_back({{1, 0}});
  name_modelled(workspace_, chart, false);
  EXPECT_EQ(chart.spec.title, "Times (some modelled)");
  EXPECT_NE(chart.spec.note.find("1 of 3 points"), std::string::npos) << chart.spec.note;
  name_modelled(workspace_, chart, false);
  EXPECT_EQ(chart.spec.title, "Times (some modelled)") << "as a script's own figure has it";
  chart = Chart();
  chart.refs = {{{{1, 0}}}};
  name_modelled(workspace_, chart, false);
  EXPECT_EQ(chart.spec.title, "(communication modelled)");
}

TEST_F(Grouping, WhatOnlyOneEngineReadsKeepsNoPointFromItsBaseline) {
  const std::vector<GridPoint> points = {
      {{{"mode", "none"}, {"memory_budget_mb", 0}, {"profile", "layers"}}, 100},
      {{{"mode", "auto"}, {"memory_budget_mb", 16000}, {"profile", "trace"}}, 120},
      {{{"mode", "ghost"}, {"memory_budget_mb", 0}, {"profile", "layers"}}, 150}};
  open({make_grid_run(root_.path(), "run", {"mode", "memory_budget_mb", "profile"}, points)});
  EXPECT_NEAR(workspace_.overhead({0, 1}).time_ratio, 1.2, 1e-9);
  EXPECT_NEAR(workspace_.overhead({0, 2}).time_ratio, 1.5, 1e-9);
}

}  // namespace
}  // namespace moonshard::viewer
