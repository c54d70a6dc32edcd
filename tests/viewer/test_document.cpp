// The document: what it shows of good, growing, damaged and hostile run folders.
#include "viewer/document.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "tests/viewer/sample_run.h"
#include "viewer/readers/requests.h"
#include "viewer/workspace.h"

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
  const auto& points = snapshot->runs[0].data->points;
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].status, "ok");
  EXPECT_EQ(points[2].status, "oom");
  EXPECT_EQ(points[3].status, "planned");
}

TEST(Document, KeepsAnUnreadableFolderInItsPlaceWithTheReason) {
  const TemporaryFolder root;
  const fs::path good = make_sample_run(root.path());
  Document document({root.path() / "nothing", good});
  document.load_now();
  const auto snapshot = document.snapshot();
  ASSERT_EQ(snapshot->runs.size(), 2u);
  EXPECT_NE(snapshot->runs[0].error.find("expected a run folder"), std::string::npos);
  EXPECT_EQ(snapshot->runs[1].error, "");
}

TEST(Document, ShowsADamagedPointAsUnreadableBesideTheOthers) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(folder / "points/p1/result.json", "{\"status\": \"ok\", ");
  const auto snapshot = load(folder);
  EXPECT_EQ(snapshot->runs[0].data->points[1].status, "unreadable");
  EXPECT_EQ(snapshot->runs[0].data->points[0].status, "ok");
  EXPECT_FALSE(snapshot->runs[0].data->problems.empty());
}

TEST(Document, DoesNotFollowAPointLinkOutOfTheFolder) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(root.path() / "secret/result.json", "{\"status\": \"ok\", \"metrics\": {\"a\": 1}}");
  fs::remove_all(folder / "points/p1");
  fs::create_directory_symlink(root.path() / "secret", folder / "points/p1");
  const auto snapshot = load(folder);
  EXPECT_EQ(snapshot->runs[0].data->points[1].status, "unreadable");
  EXPECT_FALSE(snapshot->runs[0].data->metrics.find("a"));
}

TEST(Document, DoesNotFollowAPlotLinkOutOfTheFolder) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  write_text(root.path() / "outside.plot.json", to_text(to_json(sample_plot())));
  fs::create_symlink(root.path() / "outside.plot.json",
                     folder / "visualizations/outside.plot.json");
  const auto snapshot = load(folder);
  EXPECT_EQ(snapshot->runs[0].data->plots, std::vector<std::string>{"time.plot.json"});
  const std::atomic<bool> stop = false;
  const auto read = [&](const std::string& name) {
    return read_file<records::PlotSpec>({ReadRequest::Kind::Plot, folder.string(), {name}}, {},
                                        stop);
  };
  EXPECT_THROW(read("visualizations/outside.plot.json"), IoError);
  EXPECT_THROW(read("../outside.plot.json"), IoError);
  EXPECT_EQ(read("visualizations/time.plot.json").title, "Step time");
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

// Waits for what the loader thread will do; false when it never did.
template <class Test>
bool comes_true(Test test) {
  for (int i = 0; i < 200; ++i) {
    if (test()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

TEST(Document, FollowsAFolderThatGrows) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  Document document({folder});
  document.follow();
  const auto status = [&] {
    const auto snapshot = document.snapshot();
    return snapshot->generation == 0 || snapshot->runs[0].data->points.empty()
               ? ""
               : snapshot->runs[0].data->points[3].status;
  };
  ASSERT_TRUE(comes_true([&] { return status() == "planned"; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  records::RunFolderWriter::open(folder).write_status("p3", "running");
  EXPECT_TRUE(comes_true([&] { return status() == "running"; }));
}

TEST(Document, ReloadsWhenAsked) {
  const TemporaryFolder root;
  Document document({make_sample_run(root.path())});
  document.follow();
  ASSERT_TRUE(comes_true([&] { return !document.loading(); }));
  const uint64_t before = document.snapshot()->generation;
  document.reload();
  EXPECT_TRUE(comes_true([&] { return document.snapshot()->generation > before; }));
}

TEST(Document, KeepsWhatWasReadOfAFolderThatIsDeleted) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  Document document({folder});
  document.load_now();
  fs::remove_all(folder);
  document.load_now();
  EXPECT_EQ(document.snapshot()->runs[0].data->points.size(), 4u);
  EXPECT_NE(document.snapshot()->runs[0].error, "");
}

TEST(Document, OpensAFolderOnceAndClosesIt) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  Document document({folder});
  document.open({folder / "", folder / "." / "points" / ".."});
  EXPECT_EQ(document.folders().size(), 1u);
  document.load_now();
  document.close(document.folders()[0]);
  EXPECT_TRUE(document.snapshot()->runs.empty());
}

TEST(Document, ARelativeAndAnAbsolutePathAreOneFolder) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  Document document({fs::relative(folder)});
  EXPECT_EQ(document.open({folder}), fs::relative(folder).string());
  EXPECT_EQ(document.folders().size(), 1u);
}

TEST(Document, TwoRunsOfOneSweepGoByTheNamesOfTheirFolders) {
  const TemporaryFolder root;
  const fs::path first = make_sample_run(root.path()), second = root.path() / "again",
                 third = root.path() / "elsewhere" / "again";
  fs::create_directory(root.path() / "elsewhere");
  fs::copy(first, second, fs::copy_options::recursive);
  fs::copy(first, third, fs::copy_options::recursive);
  Document document({first, second});
  document.load_now();
  const auto name = [&](size_t run) { return document.snapshot()->runs.at(run).data->name; };
  EXPECT_EQ(name(0), first.filename().string());
  EXPECT_EQ(name(1), "again");
  EXPECT_EQ(document.snapshot()->runs[1].data->points.size(), 4u);
  document.open({third});
  document.load_now();
  EXPECT_EQ(name(1), second.string());
  EXPECT_EQ(name(2), third.string());
  document.close(second.string());
  document.close(third.string());
  EXPECT_EQ(name(0), "sample");  // alone again
}

// No list of sweeps' names and folders' names; times are no names.
TEST(Document, WhereOneRunGoesByItsFolderAllDo) {
  const TemporaryFolder root;
  const fs::path made = make_sample_run(root.path()), first = root.path() / "first";
  fs::rename(made, first);
  const auto names = [&](const char* second, const char* third) {
    for (const char* name : {second, third})
      fs::copy(first, root.path() / name, fs::copy_options::recursive);
    std::ofstream(root.path() / third / "sweep.json")
        << R"({"schema_version": 1, "name": "other_sweep", "axes": [], "points": []})";
    Document document({root.path() / second, first, root.path() / third});
    document.load_now();
    return document.snapshot()->runs.at(2).data->name;
  };
  EXPECT_EQ(names("again", "third"), "third");
  EXPECT_EQ(names("run_20261115_120000", "run_20261115_130000_b"), "other_sweep");
}

TEST(Document, RelativePathsHoldAfterTheProgramWentElsewhere) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  const fs::path before = fs::current_path();
  fs::current_path(root.path());  // the reading service stays where it was started
  Document document({folder.filename()});
  document.load_now();
  fs::current_path(before);
  EXPECT_EQ(document.snapshot()->runs[0].error, "");
  EXPECT_EQ(document.snapshot()->runs[0].data->points.size(), 4u);
}

TEST(Document, ACancelledReadingSaysSo) {
  const TemporaryFolder root;
  const std::atomic<bool> stop = true;
  EXPECT_THROW(read_runs({make_sample_run(root.path()).string()}, {}, stop, [](RunAnswer) {}),
               Cancelled);
}

TEST(Workspace, ASelectionSurvivesAReloadAndAPointThatIsGone) {
  const TemporaryFolder root;
  const fs::path folder = make_sample_run(root.path());
  Document document({folder});
  document.load_now();
  Workspace workspace;
  workspace.select(PointKey{"", "p2"});
  workspace.update(document.snapshot());
  ASSERT_TRUE(workspace.selected_point());
  EXPECT_EQ(workspace.head(*workspace.selected_point()).status, "oom");
  document.load_now();
  workspace.update(document.snapshot());
  EXPECT_TRUE(workspace.selected_point());
  workspace.select(PointKey{folder.string(), "gone"});
  EXPECT_FALSE(workspace.selected_point());
  EXPECT_EQ(workspace.selected_run(), 0u);
}

TEST(Workspace, PinnedPointsStandFirstAndOutliveTheFilter) {
  const TemporaryFolder root;
  Document document({make_sample_run(root.path())});
  document.load_now();
  Workspace workspace;
  workspace.update(document.snapshot());
  workspace.set_pinned({0, 1}, true);
  workspace.set_hidden({0, 3}, true);
  workspace.set_filter("ghost");
  EXPECT_EQ(workspace.shown(), (std::vector<PointRef>{{0, 1}, {0, 2}}));
  workspace.set_filter("ghost and (");  // half typed: the last good one holds
  EXPECT_NE(workspace.filter_error(), "");
  EXPECT_EQ(workspace.shown().size(), 2u);
}

}  // namespace
}  // namespace moonshard::viewer
