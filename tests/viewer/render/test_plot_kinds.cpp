// Every kind of plot: what becomes of it before it is drawn, and the picture against a stored one.
// MOONSHARD_UPDATE_GOLDEN=1 stores the pictures anew; look at them before committing.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/viewer/golden.h"
#include "tests/viewer/render/plot_kinds.h"
#include "viewer/render/plot_layout.h"
#include "viewer/render/render_file.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

TEST(PlotKinds, PartsOfAStackStandOnEachOther) {
  const PreparedPanel panel = prepare_plot(kind_spec(stack_panel())).panels[0];
  const auto feet = stack_feet(panel, {});
  EXPECT_DOUBLE_EQ(feet[0][0], 0.0);
  EXPECT_DOUBLE_EQ(feet[1][0], 40.0);
  EXPECT_DOUBLE_EQ(panel.y_range.max, 65.0 * 1.5);
  EXPECT_LT(panel.series[0].x[0], panel.series[2].x[0]);  // the second stack stands beside it
  EXPECT_DOUBLE_EQ(panel.series[0].x[0], panel.series[1].x[0]);
}

TEST(PlotKinds, AHiddenPartLeavesNoGap) {
  const PreparedPanel panel = prepare_plot(kind_spec(stack_panel())).panels[0];
  EXPECT_DOUBLE_EQ(stack_feet(panel, {"parameters"})[1][0], 0.0);
}

TEST(PlotKinds, AFailedStackIsMarkedOnceWithItsName) {
  const PreparedPanel panel = prepare_plot(kind_spec(stack_panel())).panels[0];
  size_t marks = 0;
  for (const PreparedSeries& series : panel.series) marks += series.missing.size();
  EXPECT_EQ(marks, 1u);
  EXPECT_EQ(panel.series[0].missing.at(0).text, "ghost  oom");
}

TEST(PlotKinds, TheLegendNamesEachOwnerOnce) {
  const PreparedPlot plot = prepare_plot(kind_spec(stack_panel()));
  ASSERT_EQ(plot.legend.entries.size(), 2u);
  EXPECT_EQ(plot.legend.entries[1].name, "activations");
}

TEST(PlotKinds, ASharedLegendKeepsTheOrderOfEachPanel) {
  records::PlotSpec spec = kind_spec(area_panel());
  spec.panels.push_back(area_panel());
  spec.panels[1].series.insert(spec.panels[1].series.begin() + 1, spec.panels[1].series[0]);
  spec.panels[1].series[1].name = "gradients";
  const PreparedPlot plot = prepare_plot(spec);
  EXPECT_TRUE(plot.shared_legend);
  ASSERT_EQ(plot.legend.entries.size(), 3u);
  EXPECT_EQ(plot.legend.entries[1].name, "gradients");
}

TEST(PlotKinds, WhiskersBelongToTheRange) {
  const PreparedPanel panel = prepare_plot(kind_spec(whisker_panel())).panels[0];
  EXPECT_EQ(panel.series[0].high, (std::vector<double>{12.0, 24.0}));
  EXPECT_DOUBLE_EQ(panel.y_range.max, 24.0);
}

TEST(PlotKinds, ColoursOfAHeatMapSpanWhatTheSpecSays) {
  const PreparedPanel panel = prepare_plot(kind_spec(heat_panel())).panels[0];
  EXPECT_DOUBLE_EQ(panel.value_range.min, 0.0);
  EXPECT_DOUBLE_EQ(panel.value_range.max, 100.0);
  EXPECT_EQ(panel.series[1].missing.at(0).text, "oom");
}

TEST(PlotKinds, APointWithoutAnyPlaceIsKept) {
  const PreparedPanel panel = prepare_plot(kind_spec(scatter_panel())).panels[0];
  EXPECT_TRUE(panel.series[1].missing.at(0).no_place);
  EXPECT_LT(panel.x_range.max, 30.0);  // it takes no part in the range
}

TEST(PlotKinds, EnginesAndOwnersHaveTheSameColourInEveryPlot) {
  const auto color_of = [](const records::PlotSpec& spec, const std::string& name) {
    for (const PreparedPanel& panel : prepare_plot(spec).panels) {
      for (const PreparedSeries& series : panel.series) {
        if (series.name == name) return series.color;
      }
    }
    return size_t{999};
  };
  records::PlotSpec alone = kind_spec(whisker_panel());
  const size_t ghost = color_of(alone, "ghost");
  alone.panels[0].series.erase(alone.panels[0].series.begin());
  EXPECT_EQ(color_of(alone, "ghost"), ghost);
  EXPECT_EQ(color_of(kind_spec(scatter_panel()), "ghost"), ghost);
  EXPECT_EQ(named_series_color("ghost_fsdp"), named_series_color("ghost"));
  EXPECT_EQ(named_series_color("optimizer state"), named_series_color("optimizer_state"));
  EXPECT_EQ(named_series_color("temporaries ggT"), named_series_color("temporaries_ggt"));
  EXPECT_FALSE(named_series_color("something else"));
}

TEST(PlotKinds, OtherNamesTakeColoursThatAreFree) {
  records::PlotSpec spec = kind_spec(whisker_panel());
  spec.panels[0].series.push_back({"mine", {0}, {1.0}});
  spec.panels[0].series.push_back({"asked", {0}, {1.0}});
  spec.panels[0].series.back().color = 9;
  const std::vector<PreparedSeries> series = prepare_plot(spec).panels[0].series;
  EXPECT_EQ(series[3].color, 9u);
  for (size_t i = 0; i < series.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(series[i].color, series[j].color);
  }
}

TEST(PlotKinds, EnginesThatStandBesideEachOtherDiffer) {
  const char* engines[] = {"none",        "materialize",       "ghost", "flash",
                           "bookkeeping", "flash_bookkeeping", "auto"};
  for (const char* a : engines) {
    ASSERT_TRUE(named_series_color(a)) << a;
    for (const char* b : engines) {
      if (a == b) continue;
      EXPECT_NE(named_series_color(a), named_series_color(b)) << a << " " << b;
    }
  }
}

class PlotPictures : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(share_folder() / "fonts" / "DejaVuSans.ttf")) {
      GTEST_SKIP() << "no DejaVu font beside the program: pictures would differ by their letters";
    }
    try {
      exporter_ = std::make_unique<PlotExporter>(Theme::Light);
    } catch (const IoError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<PlotExporter> exporter_;
};

TEST_F(PlotPictures, EveryKindLooksAsStored) {
  for (const NamedSpec& kind : all_kinds()) {
    expect_as_stored(exporter_->draw(kind.spec, 1.0f), "plots/" + std::string(kind.name));
  }
}

TEST_F(PlotPictures, APointLessIsAnotherPicture) {
  // The comparison above must be able to fail: one cell, one word, one part of a stack.
  records::PlotSpec heat = kind_spec(heat_panel());
  const Image whole = exporter_->draw(heat, 1.0f);
  heat.panels[0].series[0].y[1] = 95.0;
  EXPECT_GT(different_share(exporter_->draw(heat, 1.0f), whole), 0.01);
  records::PlotSpec stacks = kind_spec(stack_panel());
  const Image all_parts = exporter_->draw(stacks, 1.0f);
  stacks.panels[0].series.pop_back();
  EXPECT_GT(different_share(exporter_->draw(stacks, 1.0f), all_parts), 0.01);
}

TEST_F(PlotPictures, SurviveNumbersAndNamesThatNobodyMeant) {
  for (NamedSpec kind : all_kinds()) {
    for (records::PlotPanel& panel : kind.spec.panels) {
      panel.title = std::string(2000, '%') + "\x01##\x1b[2J";
      for (records::PlotSeries& series : panel.series) {
        if (!series.y.empty()) series.y[0] = 1e308;
        series.name += "##%s\n\xff";
        for (std::string& text : series.texts) text = std::string(500, '#');
      }
      for (records::PlotBand& band : panel.bands) band.to = 1e308;
      for (records::PlotReference& line : panel.references) {
        for (double& y : line.y) y = -1e308;
      }
    }
    for (const auto& [width, height] : {std::pair(64, 64), {300, 200}, {1200, 80}}) {
      kind.spec.width = width;
      kind.spec.height = height;
      EXPECT_EQ(exporter_->draw(kind.spec, 1.0f).width, width) << kind.name;
    }
  }
}

TEST_F(PlotPictures, SixtyCategoriesAndManyPartsAreDrawn) {
  records::PlotPanel panel = stack_panel();
  panel.x.categories.clear();
  records::PlotSeries series{"parameters", {}, {}};
  for (int i = 0; i < 60; ++i) {
    panel.x.categories.push_back("a long name of category " + std::to_string(i));
    series.x.push_back(i);
    series.y.push_back(i % 7 == 0 ? std::nullopt : std::optional<double>(i));
    series.status.push_back(i % 7 == 0 ? "oom" : "ok");
  }
  panel.series.assign(200, series);
  for (size_t s = 0; s < panel.series.size(); ++s) panel.series[s].name += std::to_string(s);
  EXPECT_EQ(exporter_->draw(kind_spec(panel), 1.0f).width, 420);
  panel.horizontal = true;
  EXPECT_EQ(exporter_->draw(kind_spec(panel), 1.0f).width, 420);
}

}  // namespace
}  // namespace moonshard::viewer
