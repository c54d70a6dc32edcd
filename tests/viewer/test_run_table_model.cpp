// The run table's columns, filter and order.
#include "viewer/panels/run_table_model.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/viewer/sample_run.h"

namespace moonshard::viewer {
namespace {

class RunTableModel : public ::testing::Test {
 protected:
  void SetUp() override {
    snapshot_ = load_snapshot({make_sample_run(root_.path())}, 1);
    table_ = build_run_table(snapshot_);
  }

  size_t column(const std::string& key) const {
    const auto found = std::find_if(table_.columns.begin(), table_.columns.end(),
                                    [&](const TableColumn& c) { return c.key == key; });
    return static_cast<size_t>(found - table_.columns.begin());
  }

  TemporaryFolder root_;
  Snapshot snapshot_;
  RunTable table_;
};

TEST_F(RunTableModel, HasAxesAndMetricsWithUnitsAsColumns) {
  ASSERT_LT(column("peak_memory_bytes"), table_.columns.size());
  EXPECT_EQ(table_.columns[column("peak_memory_bytes")].title, "peak memory [MiB]");
  EXPECT_EQ(table_.columns[column("avg_time_ms")].title, "avg time [ms]");
  EXPECT_TRUE(table_.columns[column("seq_length")].numeric);
  EXPECT_FALSE(table_.columns[column("mode")].numeric);
  EXPECT_EQ(table_.rows[0].cells[column("peak_memory_bytes")].text, "100");
}

TEST_F(RunTableModel, KeepsFailedAndPlannedPointsAsRows) {
  ASSERT_EQ(table_.rows.size(), 4u);
  EXPECT_EQ(table_.rows[2].cells[column("status")].text, "oom");
  EXPECT_EQ(table_.rows[3].cells[column("status")].text, "planned");
}

TEST_F(RunTableModel, HasARunColumnOnlyWithSeveralFolders) {
  EXPECT_EQ(column("run"), table_.columns.size());
  const Snapshot two = load_snapshot({snapshot_.runs[0].run.path, snapshot_.runs[0].run.path}, 1);
  const RunTable table = build_run_table(two);
  EXPECT_EQ(table.columns[0].key, "run");
  EXPECT_EQ(table.rows.size(), 8u);
}

TEST_F(RunTableModel, SortsNumbersBySizeAndPutsEmptyCellsLast) {
  const size_t time = column("avg_time_ms");
  EXPECT_EQ(visible_rows(table_, "", time, false), (std::vector<size_t>{1, 0, 2, 3}));
  EXPECT_EQ(visible_rows(table_, "", time, true), (std::vector<size_t>{0, 1, 2, 3}));
  // By text "1024" would stand before "64".
  EXPECT_EQ(visible_rows(table_, "", column("seq_length"), false),
            (std::vector<size_t>{0, 2, 1, 3}));
}

TEST_F(RunTableModel, KeepsTheSweepsOrderWithoutASortColumn) {
  EXPECT_EQ(visible_rows(table_, "", table_.columns.size(), true),
            (std::vector<size_t>{0, 1, 2, 3}));
}

TEST_F(RunTableModel, FiltersByEveryWordInAnyCellWhateverTheCase) {
  const size_t none = table_.columns.size();
  EXPECT_EQ(visible_rows(table_, "GHOST", none, false), (std::vector<size_t>{2, 3}));
  EXPECT_EQ(visible_rows(table_, "ghost 1024", none, false), (std::vector<size_t>{3}));
  EXPECT_EQ(visible_rows(table_, "  oom ", none, false), (std::vector<size_t>{2}));
  EXPECT_TRUE(visible_rows(table_, "nothing-like-it", none, false).empty());
}

TEST_F(RunTableModel, BoundsTheNumberOfColumns) {
  for (int i = 0; i < 1000; ++i) {
    snapshot_.runs[0].run.points[0].metrics["metric" + std::to_string(i)] = i;
    snapshot_.runs[0].run.axes.push_back("axis" + std::to_string(i));
  }
  EXPECT_LE(build_run_table(snapshot_).columns.size(), 64u);
}

}  // namespace
}  // namespace moonshard::viewer
