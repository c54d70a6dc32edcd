// The whole program drawn without a display, panel by panel.
#include <set>

#include <gtest/gtest.h>

#include "tests/viewer/headless.h"
#include "tests/viewer/sample_run.h"
#include "viewer/app.h"
#include "viewer/context.h"
#include "viewer/panels/panel.h"

namespace moonshard::viewer {
namespace {

size_t num_colors(const Image& image) {
  std::set<uint32_t> colors;
  for (size_t i = 0; i < image.rgba.size(); i += 4) {
    colors.insert(image.rgba[i] | (image.rgba[i + 1] << 8) | (image.rgba[i + 2] << 16));
  }
  return colors.size();
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
  EXPECT_EQ(draw_screenshot(options_, 1.0f).rgba, one.rgba);
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

}  // namespace
}  // namespace moonshard::viewer
