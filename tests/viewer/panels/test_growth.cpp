// What grows with the input and what must not, counted instead of timed: memory held, and what a
// frame draws. The times themselves are printed by bench_frames and bench_trace.
#include <gtest/gtest.h>
#include <imgui.h>

#include "tests/viewer/sample_run.h"
#include "viewer/application.h"
#include "viewer/backend.h"
#include "viewer/readers/codec_fields.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

struct Written {
  fs::path folder;
  uint64_t bytes = 0;
};

// Points as small as real ones get: profile = off leaves options and metrics only.
Written write_points(const fs::path& folder, int count) {
  Written written{folder, 0};
  Json points = Json::array();
  for (int i = 0; i < count; ++i) {
    Json options, metrics;
    for (int k = 0; k < 88; ++k) {
      options["an_option_called_" + std::to_string(k)] = k % 3 ? Json(k * 0.5) : Json("value");
    }
    for (int k = 0; k < 35; ++k) metrics["a_metric_called_" + std::to_string(k)] = i * 1.25 + k;
    const std::string id = "p" + std::to_string(i);
    const std::string text =
        to_text(Json{{"status", i % 9 ? "ok" : "oom"}, {"options", options}, {"metrics", metrics}});
    write_text(folder / "points" / id / "result.json", text);
    written.bytes += text.size();
    points.push_back(Json{{"id", id}});
  }
  const std::string sweep = to_text(
      Json{{"schema_version", 1}, {"name", "many"}, {"axes", Json::array()}, {"points", points}});
  write_text(folder / "sweep.json", sweep);
  written.bytes += sweep.size();
  return written;
}

TEST(Growth, WhatIsHeldOfARunGrowsWithItsFilesAndStaysBelowThem) {
  const TemporaryFolder root;
  for (const int count : {100, 200, 400}) {
    const Written written = write_points(root.path() / std::to_string(count), count);
    Document document({written.folder});
    document.load_now();
    const size_t held = encode(*document.snapshot()->runs[0].data).size();
    EXPECT_LT(held, written.bytes) << count;
  }
}

TEST(Growth, AFrameDrawsNoMoreForMorePoints) {
  const TemporaryFolder root;
  std::vector<int> vertices;
  for (const int count : {250, 500, 1000}) {
    const Written written = write_points(root.path() / std::to_string(count), count);
    ApplicationOptions options;
    options.folders = {written.folder};
    options.panel = "run_table";
    Application app(options);
    std::unique_ptr<HeadlessBackend> backend;
    try {
      backend = make_headless_backend();
    } catch (const IoError& error) {
      GTEST_SKIP() << error.what();
    }
    backend->resize(900, 600, 1.0f);
    app.set_density(1.0f);
    app.document().load_now();
    for (int frame = 0; frame < 4; ++frame) {
      backend->begin_frame(0);
      app.draw_frame();
      backend->end_frame();
    }
    vertices.push_back(ImGui::GetDrawData()->TotalVtxCount);
  }
  EXPECT_GT(vertices[0], 1000);
  EXPECT_NEAR(vertices[1], vertices[0], 0.05 * vertices[0]);
  EXPECT_NEAR(vertices[2], vertices[0], 0.05 * vertices[0]);
}

}  // namespace
}  // namespace moonshard::viewer
