// The viewer's columns as rows of runtime/analysis, and that the window and the scripts
// say the same of the same records.

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/temporary_folder.h"
#include "tests/viewer/run_data_of_records.h"
#include "viewer/data/overhead.h"

namespace moonshard::viewer {
namespace {

TEST(AnalysisRows, TablesHaveTheValuesThatAreSweptInAnyRun) {
  RunData first, second;
  first.axes = {"mode"};
  second.axes = {"seq_length"};
  for (RunData* run : {&first, &second}) {
    RunBuilder builder(*run);
    const size_t point = builder.add_point({"p", "ok", ""});
    builder.set(run->options, point, "mode", std::string_view("flash_fsdp"));
    builder.set(run->options, point, "cpu_offload", true);
    if (run == &second) builder.set(run->options, point, "seq_length", 64.0);
    builder.set(run->metrics, point, "median_time_ms", 5.0);
    builder.finish();
  }
  const auto tables = analysis_tables({&first, &second}, "cpu_offload");
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].at(0, "mode"), analysis::Value("flash")) << "by the engine's own name";
  EXPECT_EQ(tables[0].at(0, "seq_length"), analysis::Value());
  EXPECT_EQ(tables[1].at(0, "seq_length"), analysis::Value(64.0));
  EXPECT_EQ(tables[1].at(0, "cpu_offload"), analysis::Value(true));
  EXPECT_EQ(tables[1].rows[0].metrics.median_time_ms, 5);
  EXPECT_TRUE(std::isnan(tables[1].rows[0].metrics.comm_bytes));
  EXPECT_EQ(analysis_metrics(second, 0).median_time_ms, 5);
}

// Lua's two tables of overhead, by the program, beside the window's figures: all rows, the
// baseline's own among them.
TEST(AnalysisRows, LuaSaysTheSameOverhead) {
  if (!std::filesystem::exists(MOONSHARD_PROGRAM)) GTEST_SKIP() << "the program is not built";
  const std::string folder = MOONSHARD_SOURCE_DIR "/examples/results/document_002_qwen1.5_1.8b";
  const TemporaryFolder temporary;
  const auto script = temporary.path() / "overhead.lua";
  std::ofstream(script) << "local ms = require 'moonshard'\n"
                        << "local runs = ms.load('" << folder << "')\n"
                        << "local one, other = runs:overhead(), ms.analyze.overhead(runs)\n"
                        << "for i, point in ipairs(runs.points) do\n"
                        << "  local n, a, b = #runs.axes, one.rows[i], other.rows[i]\n"
                        << "  print(point.status, a[n + 2] or 'nan', b[n + 6] or 'nan',\n"
                        << "    tostring(one.is_baseline[i]), tostring(other.is_baseline[i]))\n"
                        << "end\n";
  const std::string command = fmt::format("'{}' run '{}'", MOONSHARD_PROGRAM, script.string());
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
  ASSERT_EQ(::pclose(pipe), 0) << text;
  const RunData run = run_data_of_records(folder);
  const auto expected = overheads({&run}, default_baseline({&run}))[0];
  std::istringstream lines(text);
  size_t baselines = 0;
  for (const Overhead& each : expected) {
    std::string status, ratio, percent, first, second;
    lines >> status >> ratio >> percent >> first >> second;
    if (std::isnan(each.time_ratio)) {
      EXPECT_EQ(ratio + percent, "nannan") << text;
    } else {
      EXPECT_NEAR(std::stod(ratio), each.time_ratio, 1e-12);
      EXPECT_NEAR(std::stod(percent), each.time_percent(), 1e-9);
    }
    EXPECT_EQ(first, each.is_baseline ? "true" : "false");
    EXPECT_EQ(second, first);
    baselines += each.is_baseline;
  }
  EXPECT_EQ(baselines, 12u) << "every point with sharding = zero2, also those out of memory";
}

}  // namespace
}  // namespace moonshard::viewer
