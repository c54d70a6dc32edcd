// Every panel as a picture: a real folder of the CPU (two ranks, failed points, trace, snapshot)
// and a made-up grid, drawn without a display and compared with stored pictures.
#include <gtest/gtest.h>

#include "tests/viewer/golden.h"
#include "tests/viewer/grid_run.h"
#include "tests/viewer/headless.h"
#include "tests/viewer/sample_run.h"
#include "viewer/app.h"
#include "viewer/context.h"
#include "viewer/panels/panel.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MOONSHARD_SOURCE_DIR;
constexpr const char* kPoint = "24d1eb9545458fad";  // flash_bookkeeping, with trace and snapshot

class PanelPictures : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_pictures(); !why.empty()) GTEST_SKIP() << why;
    // The folder's name is on the screen: a relative one is the same on every machine.
    fs::current_path(kSource);
    options_.folders = {"tests/data/viewer/demo_run"};
    options_.point_id = kPoint;
    options_.width = 900;
    options_.height = 560;
    options_.theme = Theme::Dark;
  }
  AppOptions options_;
};

TEST_F(PanelPictures, EveryPanelLooksAsStored) {
  for (const std::unique_ptr<Panel>& panel : make_all_panels()) {
    options_.panel = panel->name();
    if (options_.panel == "plan") continue;  // its figures are predictions, which get better
    expect_as_stored(draw_screenshot(options_, 1.0f), "panels/" + options_.panel);
  }
}

TEST_F(PanelPictures, TheWholeWindowLooksAsStored) {
  options_.width = 1600;
  options_.height = 1000;
  expect_as_stored(draw_screenshot(options_, 1.0f), "panels/window");
  options_.theme = Theme::Light;
  expect_as_stored(draw_screenshot(options_, 1.0f), "panels/window_light");
}

TEST_F(PanelPictures, LargerTextStaysReadable) {
  options_.width = 1600;
  options_.height = 1000;
  options_.text_scale = 1.25f;
  expect_as_stored(draw_screenshot(options_, 1.0f), "panels/window_125_percent");
}

TEST_F(PanelPictures, AScreenOf4KShowsTheSameTwiceAsFine) {
  options_.width = 960;
  options_.height = 540;
  options_.panel = "comparison";
  expect_as_stored(draw_screenshot(options_, 2.0f), "panels/comparison_2x");
}

TEST_F(PanelPictures, AHeatMapOfManyPointsLooksAsStored) {
  TemporaryFolder root;
  options_.folders = {make_sharding_grid(root.path())};
  options_.point_id.clear();
  for (const char* panel : {"heat_map", "run_table", "tradeoff"}) {
    options_.panel = panel;
    expect_as_stored(draw_screenshot(options_, 1.0f), "panels/qwen_" + options_.panel);
  }
}

}  // namespace
}  // namespace moonshard::viewer
