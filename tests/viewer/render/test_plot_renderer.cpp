// Specs drawn to images without a display: size, colours, and that nothing is left out.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/viewer/sample_run.h"
#include "viewer/render/render_file.h"

namespace moonshard::viewer {
namespace {

// Skips, with the reason, where no EGL context can be made.
class PlotRenderer : public ::testing::TestWithParam<Theme> {
 protected:
  void SetUp() override {
    try {
      exporter_ = std::make_unique<PlotExporter>(Theme::Light);
    } catch (const IoError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<PlotExporter> exporter_;
};

bool is_color(const Image& image, size_t pixel, ImU32 color, int tolerance) {
  const auto near = [&](size_t channel, ImU32 wanted) {
    return std::abs(image.rgba[pixel * 4 + channel] - static_cast<int>(wanted & 0xFF)) <= tolerance;
  };
  return near(0, color >> IM_COL32_R_SHIFT) && near(1, color >> IM_COL32_G_SHIFT) &&
         near(2, color >> IM_COL32_B_SHIFT);
}

// Colours of the sample's two series, which are engines.
ImU32 none_color() {
  return series_color(*named_series_color("none"), Theme::Light);
}
ImU32 ghost_color() {
  return series_color(*named_series_color("ghost"), Theme::Light);
}

size_t count_color(const Image& image, ImU32 color, int tolerance = 2) {
  size_t count = 0;
  for (size_t pixel = 0; pixel < image.rgba.size() / 4; ++pixel) {
    count += is_color(image, pixel, color, tolerance);
  }
  return count;
}

size_t num_different_pixels(const Image& a, const Image& b) {
  size_t count = 0;
  for (size_t i = 0; i < std::min(a.rgba.size(), b.rgba.size()); i += 4) {
    count += !std::equal(a.rgba.begin() + static_cast<long>(i),
                         a.rgba.begin() + static_cast<long>(i) + 4,
                         b.rgba.begin() + static_cast<long>(i));
  }
  return count;
}

TEST_F(PlotRenderer, DrawsTheAskedSize) {
  const Image image = exporter_->draw(sample_plot(), 2.0f);
  EXPECT_EQ(image.width, 960);
  EXPECT_EQ(image.height, 640);
  EXPECT_EQ(image.rgba.size(), 960u * 640u * 4u);
}

TEST_F(PlotRenderer, DrawsEverySeriesInItsColour) {
  const Image image = exporter_->draw(sample_plot(), 1.0f);
  EXPECT_GT(count_color(image, none_color()), 2000u);
  EXPECT_GT(count_color(image, ghost_color()), 1000u);
  EXPECT_GT(count_color(image, plot_colors(Theme::Light).background), 20000u);
}

TEST_F(PlotRenderer, DrawsFailedBarsAsMarked) {
  records::PlotSpec without = sample_plot();
  records::PlotSeries& ghost = without.panels[0].series[1];
  ghost.x.pop_back();
  ghost.y.pop_back();
  ghost.status.pop_back();
  const Image marked = exporter_->draw(sample_plot(), 1.0f);
  const Image dropped = exporter_->draw(without, 1.0f);
  // The hatched stub and its word: more ink, and more of the series' own colour.
  EXPECT_GT(num_different_pixels(marked, dropped), 300u);
  const ImU32 color = ghost_color();
  EXPECT_GT(count_color(marked, color, 60), count_color(dropped, color, 60) + 50);
}

TEST_F(PlotRenderer, DrawsFailedPointsOfLinesAndScatterAsMarked) {
  for (const records::PlotKind kind : {records::PlotKind::Lines, records::PlotKind::Scatter}) {
    records::PlotSpec spec = sample_plot();
    spec.panels[0].kind = kind;
    spec.panels[0].x.categories.clear();
    records::PlotSpec other_word = spec;
    other_word.panels[0].series[1].status[1] = "failed";
    const Image image = exporter_->draw(spec, 1.0f);
    EXPECT_GT(num_different_pixels(image, exporter_->draw(other_word, 1.0f)), 20u);
    EXPECT_GT(count_color(image, ghost_color(), 8), 30u);
  }
}

TEST_F(PlotRenderer, DrawsTheSamePictureTwice) {
  const Image first = exporter_->draw(sample_plot(), 1.0f);
  EXPECT_EQ(num_different_pixels(first, exporter_->draw(sample_plot(), 1.0f)), 0u);
}

TEST_F(PlotRenderer, ShowsMarkupInNamesLiterally) {
  records::PlotSpec spec = sample_plot();
  spec.panels[0].series[0].name = "none";
  const Image plain = exporter_->draw(spec, 1.0f);
  spec.panels[0].series[0].name = "none##hidden";
  spec.panels[0].y.label = "%s%n%d";
  const Image marked = exporter_->draw(spec, 1.0f);
  EXPECT_GT(num_different_pixels(plain, marked), 100u);
}

TEST_F(PlotRenderer, SurvivesWhatAHostileSpecMayHold) {
  records::PlotSpec spec = sample_plot();
  spec.width = spec.height = 64;  // no room for anything
  EXPECT_EQ(exporter_->draw(spec, 1.0f).width, 64);
  spec = sample_plot();
  spec.title = std::string(100'000, 'x');
  spec.panels[0].kind = records::PlotKind::Lines;
  spec.panels[0].x.categories.clear();
  spec.panels[0].x.log_scale = spec.panels[0].y.log_scale = true;
  spec.panels[0].series[0] = {"s", {0, -1, 1e308}, {1e308, 5e-324, -1e308}, {}, {}};
  for (int i = 0; i < 100; ++i) spec.panels[0].series.push_back(spec.panels[0].series[0]);
  for (int i = 0; i < 15; ++i) spec.panels.push_back(spec.panels[0]);
  EXPECT_EQ(exporter_->draw(spec, 1.0f).width, 480);
}

TEST_F(PlotRenderer, RefusesAPictureTooLargeToHold) {
  records::PlotSpec spec = sample_plot();
  spec.width = spec.height = 16384;
  try {
    exporter_->draw(spec, 4.0f);
    FAIL() << "drew it";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("lower --scale"), std::string::npos);
  }
}

TEST_F(PlotRenderer, WritesAPngFileWhole) {
  const TemporaryFolder root;
  const Image image = exporter_->draw(sample_plot(), 1.0f);
  write_png(root.path() / "a.png", image);
  const std::string bytes = read_text_file(root.path() / "a.png", 1 << 24);
  EXPECT_EQ(bytes.substr(1, 3), "PNG");
  EXPECT_EQ(bytes, encode_png(image));
}

TEST(RenderFile, NamesThePngAfterTheSpec) {
  EXPECT_EQ(png_name_for("a/time_by_mode.plot.json"), "time_by_mode.png");
  EXPECT_EQ(png_name_for("odd.json"), "odd.png");
}

TEST(RenderFile, NamesTheDamagedSpecAndTheReason) {
  const TemporaryFolder root;
  write_text(root.path() / "bad.plot.json",
             R"({"schema_version": 1, "panels": [{"kind": "pie"}]})");
  try {
    load_plot_spec(root.path() / "bad.plot.json");
    FAIL() << "read it";
  } catch (const IoError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("bad.plot.json"), std::string::npos);
    EXPECT_NE(text.find("got 'pie'"), std::string::npos);
    EXPECT_NE(text.find("docs/plots.md"), std::string::npos);
  }
  EXPECT_THROW(load_plot_spec(root.path()), IoError);
  EXPECT_THROW(load_plot_spec("/dev/zero"), IoError);
}

}  // namespace
}  // namespace moonshard::viewer
