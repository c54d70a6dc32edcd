// "Copy as script": what is copied runs, and chooses the points that are on the screen.
#include "viewer/script.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "tests/viewer/sample_run.h"
#include "viewer/panels/panel.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

class Script : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(MOONSHARD_PROGRAM)) GTEST_SKIP() << "the program moonshard is not built";
    Document document({fs::path(MOONSHARD_SOURCE_DIR) / "tests/data/viewer/demo_run"});
    document.load_now();
    workspace_.update(document.snapshot());
  }

  // Runs a script with the program in a folder of its own; returns what it printed.
  std::string run(const std::string& script) {
    write_text(root_.path() / "copied.lua", script);
    const std::string command =
        "cd '" + root_.path().string() + "' && '" + MOONSHARD_PROGRAM + "' run copied.lua 2>&1";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string text;
    std::array<char, 4096> buffer{};
    while (pipe && std::fgets(buffer.data(), buffer.size(), pipe)) text += buffer.data();
    const int status = pipe ? ::pclose(pipe) : -1;
    EXPECT_EQ(status, 0) << script << "\n" << text;
    return text;
  }

  TemporaryFolder root_;
  Workspace workspace_;
};

TEST_F(Script, ChoosesTheShownPoints) {
  for (const char* filter :
       {"", "ghost", "mode = flash* and seq_length < 64", "status = oom or status = skipped",
        "not status = ok", "median_time_ms > 20ms", "run = demo* seq_length = 16",
        "has(median_time_ms)"}) {
    workspace_.set_filter(filter);
    ASSERT_EQ(workspace_.filter_error(), "") << filter;
    std::string expected;
    for (const PointRef ref : workspace_.shown()) expected += workspace_.head(ref).id + "\n";
    EXPECT_EQ(
        run(script_for(workspace_, "for _, point in ipairs(runs.points) do print(point.id) end")),
        expected)
        << filter;
  }
}

TEST_F(Script, LeavesHiddenPointsOut) {
  workspace_.set_hidden({0, 0}, true);
  EXPECT_EQ(run(script_for(workspace_, "print(#runs.points)")), "11\n");
}

TEST_F(Script, OfTheTablePrintsItsColumns) {
  const std::vector<std::unique_ptr<Panel>> panels = make_all_panels();
  const std::string text = run(panels.front()->script(workspace_));
  EXPECT_NE(text.find("time x"), std::string::npos) << text;  // the costs against the baseline
}

// Lines of figures: what the script prints must be what the window shows.
TEST_F(Script, OfCostsFollowsTheChosenBaselineWhateverTheFilterLeaves) {
  const auto first_ok = [&](const char* mode) -> PointRef {
    for (size_t p = 0; p < workspace_.run(0).points.size(); ++p) {
      const auto column = workspace_.run(0).options.find("mode");
      const bool same = workspace_.run(0).text_of(workspace_.run(0).options.at(p, *column)) == mode;
      if (same && workspace_.run(0).points[p].status == "ok") return {0, p};
    }
    throw UsageError("no such point");
  };
  const std::string path = workspace_.run(0).path;
  const std::string ghost = workspace_.head(first_ok("ghost")).id;
  workspace_.set_filter("mode = flash* and status = ok");  // none of the baselines is left
  for (const Baseline& baseline : {Baseline{Baseline::Kind::Axis, "", "", "mode", "none"},
                                   Baseline{Baseline::Kind::Axis, "", "", "mode", "ghost"},
                                   Baseline{Baseline::Kind::Axis, "", "", "seq_length", "16"},
                                   Baseline{Baseline::Kind::Point, path, ghost, "", ""}}) {
    workspace_.set_baseline(baseline);
    ASSERT_FALSE(workspace_.shown().empty());
    std::string expected;
    for (const PointRef ref : workspace_.shown()) {
      ASSERT_TRUE(std::isfinite(workspace_.overhead(ref).time_ratio)) << workspace_.baseline_text();
      expected += fmt::format("{:.6g} {:.6g}\n", workspace_.overhead(ref).time_ratio,
                              workspace_.overhead(ref).memory_bytes);
    }
    const std::string text =
        run(figures_script(workspace_, {"overhead:time_ratio", "overhead:memory_bytes"}));
    std::istringstream lines(text);
    std::string line, printed;
    std::getline(lines, line);  // titles
    while (std::getline(lines, line)) {
      std::istringstream cells(line);
      std::string mode, length, status;
      double ratio = 0, bytes = 0;
      cells >> mode >> length >> status >> ratio >> bytes;
      printed += fmt::format("{:.6g} {:.6g}\n", ratio, bytes);
    }
    EXPECT_EQ(printed, expected) << workspace_.baseline_text() << "\n" << text;
  }
}

TEST_F(Script, OfTheTableHoldsForANumberAsBaselineThatTheFilterLeavesOut) {
  workspace_.set_filter("seq_length = 32");
  workspace_.set_baseline({Baseline::Kind::Axis, "", "", "seq_length", "16"});
  const std::string text = run(make_all_panels().front()->script(workspace_));
  EXPECT_NE(text.find("time x"), std::string::npos) << text;
  EXPECT_EQ(text.find("expected a point"), std::string::npos) << text;
}

TEST_F(Script, OfAFigureLeavesTheRunFoldersPicturesAlone) {
  const fs::path folder = root_.path() / "copy";
  fs::copy(workspace_.run(0).path, folder, fs::copy_options::recursive);
  fs::remove_all(folder / "visualizations");
  Document document({folder});
  document.load_now();
  Workspace workspace;
  workspace.update(document.snapshot());
  run(figure_script(workspace, "phases"));
  EXPECT_FALSE(fs::exists(folder / "visualizations"));
  EXPECT_TRUE(fs::exists(root_.path() / "figures/copy/phases.plot.json"));
}

TEST(LuaText, QuotesWhatLuaWouldRead) {
  EXPECT_EQ(lua_text("a\"b\\c\n\x7f"), R"("a\"b\\c\010\127")");
}

}  // namespace
}  // namespace moonshard::viewer
