// Charts of whole folders, as the program makes them: the plot specs behind the pictures.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/viewer/grid_run.h"
#include "tests/viewer/headless.h"
#include "tests/viewer/sample_run.h"
#include "viewer/application.h"
#include "viewer/panels/training_curves.h"

namespace moonshard::viewer {
namespace {

class Charts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_not_drawn(); !why.empty()) GTEST_SKIP() << why;
  }

  records::PlotSpec chart(const std::vector<std::filesystem::path>& folders,
                          const std::string& panel) {
    ApplicationOptions options;
    options.folders = folders;
    options.panel = panel;
    Application app(options);
    const auto backend = make_headless_backend();
    backend->resize(900, 600, 1.0f);
    app.set_density(1.0f);
    app.document().load_now();
    for (int frame = 0; frame < 12; ++frame) {
      backend->begin_frame(0);
      app.draw_frame();
      backend->end_frame();
      app.store().wait_idle();
    }
    for (const std::unique_ptr<Panel>& each : app.panels()) {
      if (each->name() == panel && each->shown_plot()) return *each->shown_plot();
    }
    return {};
  }

  TemporaryFolder root_;
};

TEST_F(Charts, ManyBarsLieWithNamesInLinesOfTheirOwn) {
  const records::PlotSpec spec = chart({make_sharding_grid(root_.path())}, "comparison");
  ASSERT_EQ(spec.panels.size(), 3u);
  const records::PlotPanel& time = spec.panels[0];
  EXPECT_TRUE(time.horizontal);
  EXPECT_EQ(time.x.categories.size(), 12u);
  EXPECT_EQ(time.x.categories[0], "accum 1, batch 2");
  ASSERT_EQ(time.series.size(), 2u);
  EXPECT_EQ(time.series[0].name, "zero2");
  EXPECT_EQ(time.series[1].name, "zero3");
}

TEST_F(Charts, FewBarsStand) {
  const records::PlotSpec spec = chart({make_engine_grid(root_.path())}, "comparison");
  ASSERT_EQ(spec.panels.size(), 3u);
  EXPECT_FALSE(spec.panels[0].horizontal);
  EXPECT_EQ(spec.panels[0].x.categories,
            (std::vector<std::string>{"1024 tokens", "2048 tokens", "4096 tokens"}));
}

TEST_F(Charts, SeveralRunsAreFacetsInRows) {
  const records::PlotSpec spec =
      chart({make_engine_grid(root_.path()), make_sharding_grid(root_.path())}, "comparison");
  ASSERT_EQ(spec.panels.size(), 6u);
  EXPECT_EQ(spec.columns, 3);
  EXPECT_EQ(spec.panels[0].title, "engines");
  EXPECT_EQ(spec.panels[3].title, "zero_compare");
  EXPECT_EQ(spec.panels[3].x.categories[0], "accum 1, batch 2") << "the title names the run";
  EXPECT_NE(spec.title.find("modelled"), std::string::npos);
}

TEST_F(Charts, SmallDifferencesOfNoisyStepsAreWithinNoise) {
  const std::vector<GridPoint> points = {
      {{{"mode", "none"}}, 100, 4e9, {90, 95, 100, 105, 110}},
      {{{"mode", "ghost"}}, 101, 4e9, {91, 96, 101, 106, 111}},
      {{{"mode", "flash"}}, 150, 4e9, {149, 149.5, 150, 150.5, 151}}};
  const records::PlotSpec spec =
      chart({make_grid_run(root_.path(), "run", {"mode"}, points)}, "comparison");
  ASSERT_FALSE(spec.panels.empty());
  EXPECT_NE(spec.note.find("within noise"), std::string::npos);
  for (const records::PlotSeries& series : spec.panels[0].series) {
    ASSERT_EQ(series.texts.size(), 1u);
    EXPECT_EQ(series.texts[0], series.name == "ghost" ? "~" : "") << series.name;
    if (series.name == "flash") {
      EXPECT_GT(*series.low[0], 1);
    }
  }
}

TEST_F(Charts, TwoLengthsGiveNoExponent) {
  records::PlotSpec spec = chart({make_engine_grid(root_.path(), {1024, 2048})}, "scaling");
  ASSERT_EQ(spec.panels.size(), 1u);
  EXPECT_TRUE(spec.panels[0].references.empty());
  EXPECT_NE(spec.note.find("no exponent"), std::string::npos);
  spec = chart({make_engine_grid(root_.path() / "three")}, "scaling");
  ASSERT_EQ(spec.panels[0].references.size(), 3u);
  EXPECT_NE(spec.panels[0].references[0].text.find("O(T)"), std::string::npos);
}

TEST_F(Charts, FiguresOfModelledRunsSayIt) {
  const auto modelled = make_sharding_grid(root_.path());
  const auto measured = make_engine_grid(root_.path());
  for (const char* panel : {"comparison", "tradeoff", "heat_map", "scaling", "samples"}) {
    EXPECT_NE(chart({modelled}, panel).title.find("modelled"), std::string::npos) << panel;
    EXPECT_EQ(chart({measured}, panel).title.find("modelled"), std::string::npos) << panel;
  }
}

TEST_F(Charts, HeatMapsFollowWhatVaries) {
  records::PlotSpec spec = chart({make_sharding_grid(root_.path())}, "heat_map");
  ASSERT_EQ(spec.panels.size(), 2u);
  EXPECT_EQ(spec.panels[0].title, "zero2");
  EXPECT_EQ(spec.panels[0].x.label, "batch size");
  EXPECT_EQ(spec.panels[0].y.label, "accumulation steps");
  spec = chart({make_engine_grid(root_.path())}, "heat_map");
  ASSERT_EQ(spec.panels.size(), 1u);
  EXPECT_EQ(spec.panels[0].y.label, "engine");
  EXPECT_EQ(spec.panels[0].x.categories.size(), 3u);
}

// Points that differ in more than the length are no line, however many of them there are.
TEST_F(Charts, LinesJoinOnlyPointsThatAgreeInAllElse) {
  std::vector<GridPoint> points;
  const auto add = [&](int layers, int batch, int length, double ms) {
    points.push_back(
        {{{"mode", "none"}, {"num_layers", layers}, {"batch_size", batch}, {"seq_length", length}},
         ms});
  };
  add(32, 2, 512, 100);
  add(32, 2, 1024, 200);
  add(6, 2, 2048, 80);
  for (int batch = 10; batch < 60; ++batch) add(32, batch, batch % 2 == 0 ? 512 : 1024, 5 * batch);
  const records::PlotSpec spec =
      chart({make_grid_run(root_.path(), "run", {"mode", "num_layers", "batch_size", "seq_length"},
                           points)},
            "scaling");
  ASSERT_EQ(spec.panels.size(), 1u);
  ASSERT_EQ(spec.panels[0].series.size(), 1u);
  EXPECT_EQ(spec.panels[0].series[0].x, (std::vector<double>{512, 1024}));
  EXPECT_NE(spec.note.find("Left out: 51 points"), std::string::npos) << spec.note;
}

TEST_F(Charts, PointsWithoutABaselineAreCountedInsteadOfDrawn) {
  std::vector<GridPoint> points;
  for (const int batch : {2, 4}) {
    for (const char* mode : {"none", "ghost"}) {
      points.push_back({{{"mode", mode}, {"batch_size", batch}}, 100.0 * batch});
    }
  }
  points.push_back({{{"mode", "ghost"}, {"batch_size", 8}}, 900});  // nothing to compare it with
  points.push_back({{{"mode", "none"}, {"batch_size", 16}}, 900});  // nothing is compared with it
  const records::PlotSpec spec =
      chart({make_grid_run(root_.path(), "run", {"mode", "batch_size"}, points)}, "comparison");
  ASSERT_FALSE(spec.panels.empty());
  EXPECT_EQ(spec.panels[0].x.categories, (std::vector<std::string>{"batch 2", "batch 4"}));
  EXPECT_NE(spec.note.find("Left out: 2 of 6 points"), std::string::npos) << spec.note;
}

// A plan's simulated run: no step was measured, none was watched.
TEST_F(Charts, NothingOfASimulatedRunIsCalledMeasured) {
  std::vector<GridPoint> points;
  for (const char* mode : {"none", "ghost"}) {
    points.push_back({{{"mode", mode}, {"world", "modelled:8 = 1 x 8 h200"}}, 0.02, 4e9, {0.02}});
  }
  const auto folder = make_grid_run(root_.path(), "run", {"mode"}, points);
  for (const char* panel : {"tradeoff", "samples", "heat_map"}) {
    const records::PlotSpec spec = chart({folder}, panel);
    std::string words = spec.title;
    for (const records::PlotPanel& each : spec.panels) {
      words += " " + each.x.label + " " + each.y.label;
      for (const records::PlotSeries& series : each.series) words += " " + series.name;
    }
    EXPECT_EQ(words.find("measured"), std::string::npos) << panel << ": " << words;
    EXPECT_EQ(spec.note.find("measured step"), std::string::npos) << panel << ": " << spec.note;
  }
}

TEST_F(Charts, HeatMapsStandByTheirNumbersAndThoseOfOneCellAreLeftOut) {
  std::vector<GridPoint> points;
  for (const int length : {128, 64}) {
    for (const char* mode : {"none", "ghost"}) {
      for (const int batch : {8, 2, 4}) {
        points.push_back(
            {{{"mode", mode}, {"batch_size", batch}, {"seq_length", length}}, 0.001 * length});
      }
    }
  }
  points.push_back({{{"mode", "none"}, {"batch_size", 8}, {"seq_length", 256}}, 0.5});
  const records::PlotSpec spec =
      chart({make_grid_run(root_.path(), "run", {"mode", "batch_size", "seq_length"}, points)},
            "heat_map");
  std::vector<std::string> titles;
  for (const records::PlotPanel& panel : spec.panels) titles.push_back(panel.title);
  EXPECT_EQ(titles, (std::vector<std::string>{"64 tokens", "128 tokens"}));
  EXPECT_NE(spec.note.find("Left out: 1 point"), std::string::npos) << spec.note;
  EXPECT_EQ(spec.panels[0].value.unit, "million") << "15625000 tokens/s cannot be read at a glance";
}

TEST_F(Charts, TheNoteOfACutTrainingChartSaysItOnce) {
  records::RunFolderWriter writer = records::RunFolderWriter::create(root_.path(), "fit");
  std::vector<records::PlannedPoint> planned;
  for (int p = 0; p < 100; ++p) planned.push_back({"p" + std::to_string(p), {{"lr", p}}, ""});
  writer.write_sweep("fit", Json::object(), {"lr"}, planned);
  const Json steps{{{"step", 1}, {"loss", 2.0}}, {{"step", 2}, {"loss", 1.0}}};
  for (const records::PlannedPoint& point : planned) {
    writer.write_result(
        point.id,
        Json{
            {"schema_version", 1}, {"status", "ok"}, {"options", point.options}, {"steps", steps}});
  }
  EXPECT_EQ(chart({writer.path()}, "training").note,
            "The first 12 of 100 points; a filter chooses others.");
}

TEST_F(Charts, PlotsOfAnotherOpenRunAreShownWhereTheSelectedOneHasNone) {
  const auto without = make_engine_grid(root_.path());
  EXPECT_TRUE(chart({without}, "plot").panels.empty());
  EXPECT_EQ(chart({without, make_sample_run(root_.path())}, "plot").title, "Step time");
}

TEST_F(Charts, TrainingCurvesOfSeveralRunsStandTogether) {
  records::RunFolderWriter writer = records::RunFolderWriter::create(root_.path(), "fit");
  writer.write_sweep("fit", Json::object(), {"lr"},
                     {{"p0", {{"lr", 0.1}}, ""}, {"p1", {{"lr", 0.2}}, ""}});
  for (const int point : {0, 1}) {
    Json steps = Json::array();
    for (int step = 1; step <= 8; ++step) {
      steps.push_back({{"step", step}, {"loss", 4.0 / step + point}, {"lr", 0.1 * (point + 1)}});
      if (step % 4 == 0) steps.back()["eval_loss"] = 5.0 / step;
      if (step % 4 == 0 && point == 0) steps.back()["accuracy"] = step / 10.0;
    }
    writer.write_result("p" + std::to_string(point),
                        Json{{"schema_version", 1},
                             {"status", point == 0 ? "ok" : "interrupted"},
                             {"options", {{"lr", 0.1 * (point + 1)}}},
                             {"steps", steps}});
  }
  const records::PlotSpec spec = chart({writer.path()}, "training");
  ASSERT_EQ(spec.panels.size(), 3u) << "loss, accuracy, learning rate";
  EXPECT_EQ(spec.panels[0].title, "Loss");
  ASSERT_EQ(spec.panels[0].series.size(), 4u) << "both runs, each with its evaluations";
  EXPECT_EQ(spec.panels[0].series[0].x.size(), 8u);
  EXPECT_EQ(*spec.panels[0].series[0].y[3], 1.0);
  EXPECT_EQ(spec.panels[0].series[1].x, (std::vector<double>{4, 8}));
  EXPECT_EQ(spec.panels[0].series[2].color, 1) << "a run has one colour in all panels";
  ASSERT_EQ(spec.panels[1].series.size(), 1u);
  EXPECT_EQ(*spec.panels[1].series[0].y[1], 80.0);
  EXPECT_NE(spec.panels[0].series[0].name, spec.panels[0].series[2].name);
}

TEST_F(Charts, SmoothingIsAMeanOfWhatCameBefore) {
  EXPECT_EQ(smoothed({1, 2, 4}, 0), (std::vector<double>{1, 2, 4}));
  const std::vector<double> half = smoothed({1, 2, 4}, 0.5);
  EXPECT_DOUBLE_EQ(half[0], 1);
  EXPECT_DOUBLE_EQ(half[1], (0.25 * 1 + 0.5 * 2) / 0.75);
  EXPECT_DOUBLE_EQ(half[2], (0.125 * 1 + 0.25 * 2 + 0.5 * 4) / 0.875);
}

}  // namespace
}  // namespace moonshard::viewer
