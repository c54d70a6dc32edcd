// The run table's columns, cells, order and groups.
#include "viewer/panels/run_table_model.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/viewer/grid_run.h"
#include "tests/viewer/reader_support.h"
#include "tests/viewer/sample_run.h"

namespace moonshard::viewer {
namespace {

class RunTableModel : public ::testing::Test {
 protected:
  void SetUp() override { load({make_sample_run(root_.path())}); }

  void load(const std::vector<std::filesystem::path>& folders) {
    Document document(folders);
    document.load_now();
    workspace_.update(document.snapshot());
    columns_ = all_columns(workspace_);
    describe_columns(workspace_, columns_);
  }

  const TableColumn* column(const std::string& key) const {
    const auto found = std::find_if(columns_.begin(), columns_.end(),
                                    [&](const TableColumn& c) { return c.key == key; });
    return found == columns_.end() ? nullptr : &*found;
  }

  std::vector<size_t> order(const char* key, bool descending) const {
    TableOrder wanted;
    wanted.sort = key ? column(key) : nullptr;
    wanted.descending = descending;
    std::vector<size_t> points;
    for (const TableLine& line : table_lines(workspace_, wanted)) points.push_back(line.ref.point);
    return points;
  }

  TemporaryFolder root_;
  Workspace workspace_;
  std::vector<TableColumn> columns_;
};

TEST_F(RunTableModel, HasAxesAndMetricsWithUnitsAsColumns) {
  ASSERT_TRUE(column("peak_memory_bytes") && column("seq_length") && column("mode"));
  EXPECT_EQ(column("peak_memory_bytes")->title, "measured peak [MiB]")
      << "the memory panels show that of the watched step";
  EXPECT_EQ(column("avg_time_ms")->title, "avg time [ms]");
  EXPECT_TRUE(column("seq_length")->numeric);
  EXPECT_FALSE(column("mode")->numeric);
  EXPECT_EQ(cell_text(workspace_, *column("peak_memory_bytes"), {0, 0}), "100");
}

TEST_F(RunTableModel, NothingOfASimulatedRunIsCalledMeasured) {
  load({source_folder() / "examples/results/scaling_modelled"});
  ASSERT_TRUE(column("peak_memory_bytes"));
  EXPECT_EQ(column("peak_memory_bytes")->title, "modelled peak [GiB]");
}

TEST_F(RunTableModel, OffersEveryOptionAndKnowsWhichDiffer) {
  ASSERT_TRUE(column("noise_multiplier"));
  EXPECT_FALSE(column("noise_multiplier")->main);
  EXPECT_FALSE(column("noise_multiplier")->differs);
  EXPECT_TRUE(column("mode")->differs);
  EXPECT_EQ(cell_text(workspace_, *column("noise_multiplier"), {0, 0}), "0.8");
}

TEST_F(RunTableModel, WhatDiffersAndTheMainFiguresComeFirst) {
  const auto main_keys = [&] {
    std::vector<std::string> keys;
    for (const TableColumn& each : columns_) {
      if (each.main) keys.push_back(each.key);
    }
    return keys;
  };
  load({make_engine_grid(root_.path())});
  std::vector<std::string> keys = main_keys();
  ASSERT_GE(keys.size(), 6u);
  keys.resize(6);
  EXPECT_EQ(keys, (std::vector<std::string>{"mode", "seq_length", "median_time_ms",
                                            "peak_memory_bytes", "time_ratio", "memory_percent"}))
      << "what all points share is no main column";
  EXPECT_FALSE(column("num_layers")->main);
  // Of several sweeps many options differ: their words stand in one column.
  load({make_engine_grid(root_.path()), make_sharding_grid(root_.path())});
  keys = main_keys();
  keys.resize(4);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"run", "point", "median_time_ms", "peak_memory_bytes"}));
  EXPECT_EQ(cell_text(workspace_, *column("point"), {0, 1}), "ghost, 1024 tokens");
}

TEST_F(RunTableModel, WhatAScriptMeasuredItselfIsShownAtFirst) {
  auto data = std::make_shared<RunData>(workspace_.run(0));
  RunBuilder builder(*data);
  builder.set(data->metrics, 0, "score", 0.5);
  builder.set(data->metrics, 0, "cpu_percent", 90.0);
  for (int i = 0; i < 20; ++i)
    builder.set(data->metrics, 0, "zz_more" + std::to_string(i), 1.0 * i);
  builder.finish();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->generation = 98;
  snapshot->runs.push_back({data, ""});
  workspace_.update(snapshot);
  columns_ = all_columns(workspace_);
  ASSERT_TRUE(column("score") && column("cpu_percent"));
  EXPECT_TRUE(column("score")->main);
  EXPECT_FALSE(column("cpu_percent")->main) << "every experiment has it";
  const auto is_main_own = [](const TableColumn& c) {
    return c.main && (c.key == "score" || c.key.starts_with("zz_"));
  };
  EXPECT_EQ(std::count_if(columns_.begin(), columns_.end(), is_main_own), 8);
}

TEST_F(RunTableModel, KeepsFailedAndPlannedPointsAsRows) {
  EXPECT_EQ(order(nullptr, false), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(cell_text(workspace_, *column("status"), {0, 2}), "oom");
  EXPECT_EQ(cell_text(workspace_, *column("status"), {0, 3}), "planned");
}

TEST_F(RunTableModel, HasARunColumnOnlyWithSeveralFolders) {
  EXPECT_EQ(column("run"), nullptr);
  load({make_sample_run(root_.path()), make_sample_run(root_.path() / "other")});
  ASSERT_TRUE(column("run"));
  EXPECT_EQ(workspace_.shown().size(), 8u);
}

TEST_F(RunTableModel, SortsNumbersBySizeAndPutsEmptyCellsLast) {
  EXPECT_EQ(order("avg_time_ms", false), (std::vector<size_t>{1, 0, 2, 3}));
  EXPECT_EQ(order("avg_time_ms", true), (std::vector<size_t>{0, 1, 2, 3}));
  // By text "1024" would stand before "64".
  EXPECT_EQ(order("seq_length", false), (std::vector<size_t>{0, 2, 1, 3}));
}

TEST_F(RunTableModel, PinnedRowsStayOnTopOfAnyOrder) {
  workspace_.set_pinned({0, 3}, true);
  EXPECT_EQ(order("avg_time_ms", false), (std::vector<size_t>{3, 1, 0, 2}));
}

TEST_F(RunTableModel, GroupsByAColumnAndFoldsGroupsAway) {
  TableOrder wanted;
  wanted.group = column("mode");
  std::vector<TableLine> lines = table_lines(workspace_, wanted);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_TRUE(lines[0].is_group);
  EXPECT_EQ(lines[0].group, "none");
  EXPECT_EQ(lines[0].num_points, 2u);
  EXPECT_EQ(lines[3].group, "ghost");
  wanted.closed = {"none"};
  lines = table_lines(workspace_, wanted);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].group, "ghost");
}

TEST_F(RunTableModel, ShowsTheCostAgainstTheBaseline) {
  workspace_.set_baseline({Baseline::Kind::Point, workspace_.run(0).path, "p0", "", ""});
  columns_ = all_columns(workspace_);
  ASSERT_TRUE(column("memory_percent") && column("time_ratio"));
  EXPECT_EQ(cell_text(workspace_, *column("memory_percent"), {0, 1}), "200");
  EXPECT_EQ(cell_text(workspace_, *column("time_ratio"), {0, 1}), "0.7800");
  EXPECT_EQ(cell_text(workspace_, *column("time_ratio"), {0, 2}), "");
}

TEST_F(RunTableModel, BoundsTheNumberOfColumns) {
  auto data = std::make_shared<RunData>(workspace_.run(0));
  RunBuilder builder(*data);
  for (int i = 0; i < 1000; ++i)
    builder.set(data->metrics, 0, "metric" + std::to_string(i), 1.0 * i);
  builder.finish();
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->generation = 99;
  snapshot->runs.push_back({data, ""});
  workspace_.update(snapshot);
  EXPECT_LE(all_columns(workspace_).size(), 410u);
}

}  // namespace
}  // namespace moonshard::viewer
