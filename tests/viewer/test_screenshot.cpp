// The whole program drawn without a display, panel by panel.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "tests/viewer/headless.h"
#include "tests/viewer/sample_run.h"
#include "viewer/app.h"
#include "viewer/context.h"
#include "viewer/panels/panel.h"
#include "viewer/render/render_file.h"

namespace moonshard::viewer {
namespace {

size_t num_colors(const Image& image) {
  std::set<uint32_t> colors;
  for (size_t i = 0; i < image.rgba.size(); i += 4) {
    colors.insert(image.rgba[i] | (image.rgba[i + 1] << 8) | (image.rgba[i + 2] << 16));
  }
  return colors.size();
}

size_t num_different(const Image& a, const Image& b) {
  if (a.rgba.size() != b.rgba.size()) return a.rgba.size();
  size_t count = 0;
  for (size_t i = 0; i < a.rgba.size(); i += 4)
    count += std::equal(a.rgba.begin() + i, a.rgba.begin() + i + 4, b.rgba.begin() + i) ? 0 : 1;
  return count;
}

class Screenshot : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_not_drawn(); !why.empty()) GTEST_SKIP() << why;
    options_.folders = {make_sample_run(root_.path())};
    options_.width = 800;
    options_.height = 500;
  }
  TemporaryFolder root_;
  AppOptions options_;
};

TEST_F(Screenshot, ShowsAllPanelsInBothThemes) {
  for (const Theme theme : {Theme::Light, Theme::Dark}) {
    options_.theme = theme;
    const Image image = draw_screenshot(options_, 1.0f);
    EXPECT_EQ(image.width, 800);
    EXPECT_EQ(image.height, 500);
    EXPECT_GT(num_colors(image), 50u);
  }
}

TEST_F(Screenshot, ShowsEachPanelAlone) {
  for (const std::unique_ptr<Panel>& panel : make_all_panels()) {
    options_.panel = panel->name();
    EXPECT_GT(num_colors(draw_screenshot(options_, 1.0f)), 20u) << panel->name();
  }
}

TEST_F(Screenshot, ShowsTheSelectedPointsError) {
  options_.panel = "details";
  options_.point_id = "p0";
  const Image good = draw_screenshot(options_, 1.0f);
  options_.point_id = "p2";
  const Image failed = draw_screenshot(options_, 1.0f);
  EXPECT_NE(good.rgba, failed.rgba);
}

TEST_F(Screenshot, SurvivesTextThatIsMarkupElsewhere) {
  records::RunFolderWriter writer = records::RunFolderWriter::open(options_.folders[0]);
  writer.write_result("p0", Json{{"status", "ok##x"},
                                 {"error", "%s%n\x1b[2J"},
                                 {"metrics", {{"##", 1}, {"%n", "%s"}, {"", Json::array()}}},
                                 {"options", {{"mode", "a##b"}, {"seq_length", "###"}}}});
  for (const char* panel : {"run_table", "details", ""}) {
    options_.panel = panel;
    options_.point_id = "p0";
    EXPECT_GT(num_colors(draw_screenshot(options_, 1.0f)), 30u);
  }
}

TEST_F(Screenshot, OpensAFolderOfRunFolders) {
  const Image one = draw_screenshot(options_, 1.0f);
  options_.folders = {root_.path()};
  // Letters lie in the atlas in the order they were first drawn in, which depends on when files are
  // read: the edge of one may have a shade of its neighbour there.
  EXPECT_LT(num_different(draw_screenshot(options_, 1.0f), one), 20u);
}

TEST_F(Screenshot, NamesThePanelsThatThereAre) {
  options_.panel = "no_such_panel";
  try {
    draw_screenshot(options_, 1.0f);
    FAIL() << "drew it";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("run_table"), std::string::npos);
  }
}

TEST_F(Screenshot, SaysWhatAFolderWithoutSweepIs) {
  options_.folders = {root_.path() / "empty"};
  std::filesystem::create_directory(options_.folders[0]);
  try {
    draw_screenshot(options_, 1.0f);
    FAIL() << "drew it";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("sweep.json"), std::string::npos);
  }
}

TEST_F(Screenshot, AWrongRequestFailsWithWhatWasProbablyMeant) {
  const auto error_of = [&] {
    try {
      draw_screenshot(options_, 1.0f);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  options_.panel = "memry";
  EXPECT_TRUE(has(error_of(), "did you mean 'memory'")) << error_of();
  options_.panel = "memory";
  options_.point_id = "p9";
  EXPECT_TRUE(has(error_of(), "--select") && has(error_of(), "did you mean 'p")) << error_of();
  options_.point_id = "p1";
  options_.filter = "mod = ghost";
  EXPECT_TRUE(has(error_of(), "--filter") && has(error_of(), "did you mean 'mode'")) << error_of();
  options_.filter = "mode = gost";
  EXPECT_TRUE(has(error_of(), "none of them") && has(error_of(), "did you mean 'ghost'"))
      << error_of();
  options_.filter = "mode = ghost";
  EXPECT_EQ(error_of(), "");
}

TEST_F(Screenshot, APointIsSelectedOnOpening) {
  options_.panel = "details";
  const Image by_itself = draw_screenshot(options_, 1.0f);
  options_.point_id = "p0";
  EXPECT_EQ(by_itself.rgba, draw_screenshot(options_, 1.0f).rgba);
}

TEST_F(Screenshot, FilesThatAreNoRunsArePassedOver) {
  options_.panel = "run_table";
  const Image one = draw_screenshot(options_, 1.0f);
  write_text(root_.path() / "README.md", "read me");
  std::filesystem::create_directory(root_.path() / "pictures");
  options_.folders = {root_.path() / "README.md", root_.path() / "pictures", options_.folders[0]};
  EXPECT_EQ(draw_screenshot(options_, 1.0f).rgba, one.rgba);
  options_.folders = {root_.path() / "README.md"};
  EXPECT_THROW(draw_screenshot(options_, 1.0f), IoError) << "nothing is left";
}

TEST_F(Screenshot, ASnapshotOpensByItself) {
  const std::filesystem::path source = MOONSHARD_SOURCE_DIR;
  options_.panel = "memory_snapshot";
  const Image none = draw_screenshot(options_, 1.0f);
  options_.folders = {source / "tests/data/viewer/snapshot_torch.pickle"};
  const Image image = draw_screenshot(options_, 1.0f);
  EXPECT_NE(image.rgba, none.rgba);
  EXPECT_GT(num_colors(image), 60u);
}

TEST_F(Screenshot, AWideFigureHasLargerText) {
  EXPECT_EQ(page_text_scale(480), 1.0f);
  EXPECT_EQ(page_text_scale(900), 1.0f);
  EXPECT_GT(page_text_scale(1300), 1.3f);
  EXPECT_LE(page_text_scale(10000), 1.5f);
  options_.panel = "tradeoff";
  records::PlotSpec spec = chart_of_panel(options_);
  PlotExporter exporter(Theme::Light);
  spec.width = 1300;
  spec.height = 400;
  const Image image = exporter.draw(spec, 1.0f);
  EXPECT_EQ(image.width, 1300);
  EXPECT_EQ(image.height, 400);
}

}  // namespace
}  // namespace moonshard::viewer
