// The document: what it shows of good, growing, damaged and hostile run folders.
#include "viewer/document.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tests/viewer/sample_run.h"
#include "viewer/selection.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Snapshot> load(const fs::path& folder) {
  Document document({folder});
  document.load_now();
  return document.snapshot();
}

TEST(Document, ShowsAllPointsOfAFolderWithTheirStatus) {
  const TemporaryFolder root;
  const auto snapshot = load(make_sample_run(root.path()));
  ASSERT_EQ(snapshot->runs.size(), 1u);
  EXPECT_EQ(snapshot->runs[0].error, "");
  const auto& points = snapshot->runs[0].run.points;
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].status, "ok");
  EXPECT_EQ(points[2].status, "oom");
  EXPECT_EQ(points[3].status, "planned");
}

TEST(Document, KeepsAnUnreadableFolderInItsPlaceWithTheReason) {
  const TemporaryFolder root;
  const fs::path good = make_sample_run(root.path());
  const Snapshot snapshot = load_snapshot({root.path() / "nothing", good}, 1);
  ASSERT_EQ(snapshot.runs.size(), 2u);
  EXPECT_NE(snapshot.runs[0].error.find("expected a run folder"), std::string::npos);
  EXPECT_EQ(snapshot.runs[1].error, "");
}

TEST(Document, ShowsADamagedPointAsUnreadableBesideTheOthers) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(folder / "points/p1/result.json", "{\"status\": \"ok\", ");
  const auto snapshot = load(folder);
  EXPECT_EQ(snapshot->runs[0].run.points[1].status, "unreadable");
  EXPECT_EQ(snapshot->runs[0].run.points[0].status, "ok");
  EXPECT_FALSE(snapshot->runs[0].run.problems.empty());
}

TEST(Document, DoesNotFollowAPointLinkOutOfTheFolder) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(root.path() / "secret/result.json", "{\"status\": \"ok\", \"metrics\": {\"a\": 1}}");
  fs::remove_all(folder / "points/p1");
  fs::create_directory_symlink(root.path() / "secret", folder / "points/p1");
  const auto snapshot = load(folder);
  EXPECT_EQ(snapshot->runs[0].run.points[1].status, "unreadable");
  EXPECT_TRUE(snapshot->runs[0].run.points[1].metrics.empty());
}

TEST(Document, DoesNotFollowAPlotLinkOutOfTheFolder) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(root.path() / "outside.plot.json", records::to_text(to_json(sample_plot())));
  fs::create_symlink(root.path() / "outside.plot.json",
                     folder / "visualizations/outside.plot.json");
  const auto snapshot = load(folder);
  EXPECT_EQ(snapshot->runs[0].run.plots, std::vector<std::string>{"time.plot.json"});
  EXPECT_THROW(load_run_plot(snapshot->runs[0].run, "outside.plot.json"), IoError);
  EXPECT_THROW(load_run_plot(snapshot->runs[0].run, "../../outside.plot.json"), IoError);
  EXPECT_EQ(load_run_plot(snapshot->runs[0].run, "time.plot.json").title, "Step time");
}

TEST(Document, SignatureChangesWhenAPointIsRewritten) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  const uint64_t before = folder_signature(folder);
  EXPECT_EQ(folder_signature(folder), before);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the file system's clock tick
  records::RunFolderWriter::open(folder).write_status("p0", "failed");
  EXPECT_NE(folder_signature(folder), before);
}

TEST(Document, FollowsAFolderThatGrows) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  Document document({folder});
  std::atomic<int> changes = 0;
  document.follow([&] { ++changes; });
  const auto wait_for = [&](int wanted) {
    for (int i = 0; i < 100 && changes < wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  };
  wait_for(1);
  ASSERT_GE(changes, 1);
  EXPECT_EQ(document.snapshot()->runs[0].run.points[3].status, "planned");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  records::RunFolderWriter::open(folder).write_status("p3", "running");
  wait_for(changes + 1);
  EXPECT_EQ(document.snapshot()->runs[0].run.points[3].status, "running");
}

TEST(Document, ReloadsWhenAsked) {
  const TemporaryFolder root;
  Document document({make_sample_run(root.path())});
  std::atomic<int> changes = 0;
  document.follow([&] { ++changes; });
  for (int i = 0; i < 100 && changes < 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const uint64_t before = document.snapshot()->generation;
  document.reload();
  for (int i = 0; i < 100 && changes < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_GT(document.snapshot()->generation, before);
}

TEST(Selection, SurvivesAPointThatIsGone) {
  const TemporaryFolder root;
  const auto snapshot = load(make_sample_run(root.path()));
  Selection selection;
  selection.point_id = "p2";
  ASSERT_NE(selected_point(*snapshot, selection), nullptr);
  EXPECT_EQ(selected_point(*snapshot, selection)->status, "oom");
  selection.point_id = "gone";
  EXPECT_EQ(selected_point(*snapshot, selection), nullptr);
  selection.run = 7;
  EXPECT_EQ(selected_run(*snapshot, selection), nullptr);
}

}  // namespace
}  // namespace moonshard::viewer
