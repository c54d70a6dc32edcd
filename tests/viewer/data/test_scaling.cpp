// Growth: the same numbers and verdicts as scripts/moonshard/analyze/scaling.lua, which is run
// beside it.
#include "viewer/data/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/temporary_folder.h"
#include "tests/viewer/run_data_of_records.h"

namespace moonshard::viewer {
namespace {

struct Case {
  const char* what;
  std::vector<double> x, y;
};

std::vector<Case> cases() {
  return {
      {"linear", {512, 1024, 2048, 4096}, {10, 20.1, 39.8, 80.5}},
      {"linear with a fixed cost", {512, 1024, 2048, 4096}, {60, 81, 119, 200}},
      {"quadratic", {512, 1024, 2048, 4096}, {1, 4.1, 15.8, 64.3}},
      {"quadratic with a fixed cost", {256, 512, 1024, 2048}, {51, 54, 66, 114}},
      {"constant", {512, 1024, 2048, 4096}, {7, 7.01, 6.99, 7}},
      {"exactly constant", {512, 1024, 2048}, {7, 7, 7}},
      {"in between: T + 0.08 T^2", {512, 1024, 2048, 4096}, {1.08, 2.32, 5.28, 13.12}},
      {"noise", {512, 1024, 2048, 4096}, {1, 30, 2, 90}},
      {"constant noise", {512, 1024, 2048, 4096}, {1, 9, 2, 1}},
      {"falling", {512, 1024, 2048, 4096}, {80, 40, 20, 10}},
      {"two points", {512, 1024}, {3, 6}},
      {"two sizes, three points", {512, 512, 1024}, {3, 3.1, 6}},
      {"out of order", {4096, 512, 2048, 1024}, {80, 10, 40, 20}},
      {"gaps", {256, 512, 1024, 2048, 4096}, {-1, 10, 0, 41, 80}},
      {"huge", {1e100, 1e101, 1e102}, {1e200, 1e201, 1e202}},
  };
}

std::string lua_list(const std::vector<double>& numbers) {
  return fmt::format("{{ {:.17g} }}", fmt::join(numbers, ", "));
}

void expect_number(double got, const std::string& lua, const std::string& what) {
  if (lua == "nil") {
    EXPECT_TRUE(std::isnan(got)) << what << ": " << got;
    return;
  }
  const double expected = std::stod(lua);
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << ": " << got;
    return;
  }
  // Sums in another order, and errors of perfect fits, which are nothing but rounding.
  EXPECT_NEAR(got, expected, 1e-9 * std::abs(expected) + 1e-12) << what;
}

TEST(Scaling, SaysWhatTheScriptSays) {
  if (std::system("luajit -v > /dev/null 2>&1") != 0) GTEST_SKIP() << "luajit is not installed";
  const TemporaryFolder folder;
  const auto script = folder.path() / "fit.lua", result = folder.path() / "result.txt";
  {
    std::ofstream file(script);
    // fit() is plain arithmetic: what else the script needs of the program is left out.
    file
        << "package.path = '" MOONSHARD_SOURCE_DIR
           "/scripts/?.lua'\n"
           "package.preload['moonshard.text_table'] = function() return {} end\n"
           "package.preload['moonshard.options_guard'] = function() return {} end\n"
           "local fit = require('moonshard.analyze.scaling').fit\n"
           "local function show(x, y)\n"
           "  local f = fit(x, y)\n"
           "  if not f then print('none') return end\n"
           "  local list = { f.exponent, f.standard_error or 'nil', f.factor, f.last_exponent or "
           "'nil', f.linear.offset, f.linear.slope, f.linear.error, f.quadratic.offset, "
           "f.quadratic.slope, f.quadratic.error }\n"
           "  for i, v in ipairs(list) do list[i] = type(v) == 'number' and ('%.17g'):format(v) or "
           "v end\n"
           "  print(table.concat(list, ' ') .. ' ' .. f.verdict .. ' ' .. f.count)\n"
           "end\n";
    for (const Case& item : cases())
      file << "show(" << lua_list(item.x) << ", " << lua_list(item.y) << ")\n";
  }
  ASSERT_EQ(std::system(("luajit '" + script.string() + "' > '" + result.string() + "'").c_str()),
            0);
  std::ifstream file(result);
  std::string line;
  for (const Case& item : cases()) {
    ASSERT_TRUE(std::getline(file, line)) << item.what;
    const auto fit = fit_scaling(item.x, item.y);
    ASSERT_TRUE(fit) << item.what << ": " << line;
    std::istringstream words(line);
    std::string word, verdict;
    for (const double own : {fit->exponent, fit->standard_error, fit->factor, fit->last_exponent,
                             fit->linear.offset, fit->linear.slope, fit->linear.error,
                             fit->quadratic.offset, fit->quadratic.slope, fit->quadratic.error}) {
      words >> word;
      expect_number(own, word, item.what);
    }
    size_t count = 0;
    words >> verdict >> count;
    EXPECT_EQ(verdict_text(fit->verdict), verdict) << item.what;
    EXPECT_EQ(fit->x.size(), count) << item.what;
  }
}

TEST(Scaling, VerdictsAreThoseThatTheNamesSay) {
  std::vector<std::string> verdicts;
  for (const Case& item : cases())
    verdicts.push_back(verdict_text(fit_scaling(item.x, item.y)->verdict));
  EXPECT_THAT(verdicts, testing::ElementsAre("O(T)", "O(T)", "O(T^2)", "O(T^2)", "O(1)", "O(1)",
                                             "between", "undecided", "undecided", "O(1)",
                                             "undecided", testing::_, "O(T)", "O(T)", testing::_));
}

TEST(Scaling, NeedsTwoSizesAndFiguresAboveZero) {
  EXPECT_FALSE(fit_scaling({}, {}));
  EXPECT_FALSE(fit_scaling({512}, {1}));
  EXPECT_FALSE(fit_scaling({512, 512}, {1, 2}));
  EXPECT_FALSE(fit_scaling({512, 1024}, {NAN, 2}));
  EXPECT_FALSE(fit_scaling({512, 1024}, {0, 2}));
  EXPECT_FALSE(fit_scaling({-1, 1024}, {1, 2}));
  EXPECT_FALSE(fit_scaling({1, INFINITY}, {1, 2}));
}

// Printed by ms.analyze.scaling on the same folder.
TEST(Scaling, OfStoredResultsIsTheScripts) {
  const RunData run =
      run_data_of_records(MOONSHARD_SOURCE_DIR "/examples/results/document_000_llama3.1_8b");
  const auto families = scaling_families(run, "seq_length");
  ASSERT_EQ(families.size(), 3u);
  EXPECT_EQ(families[0].name, "none");
  EXPECT_EQ(families[1].name, "ghost");
  EXPECT_EQ(families[2].name, "flash");
  const auto fit = [&](const ScalingFamily& family, const std::string& name) {
    std::vector<double> x, y;
    for (const ScalingQuantity& quantity : scaling_quantities()) {
      if (name != quantity.name) continue;
      for (const size_t point : family.points) {
        x.push_back(run.option_number(point, "seq_length"));
        y.push_back(quantity.read(run, point, nullptr));
      }
    }
    return fit_scaling(x, y);
  };
  const auto ghost = fit(families[1], "step");
  ASSERT_TRUE(ghost);
  EXPECT_NEAR(ghost->exponent, 0.90906537268734933, 1e-12);
  EXPECT_NEAR(ghost->standard_error, 0.083836082637344, 1e-12);
  EXPECT_NEAR(ghost->last_exponent, 1.0542737273228, 1e-12);
  EXPECT_NEAR(ghost->linear.error, 0.038325769100907132, 1e-12);
  EXPECT_NEAR(ghost->quadratic.error, 0.055506516403281941, 1e-12);
  EXPECT_STREQ(verdict_text(ghost->verdict), "between");
  EXPECT_STREQ(verdict_text(fit(families[2], "step")->verdict), "O(T)");
  EXPECT_STREQ(verdict_text(fit(families[1], "peak memory")->verdict), "O(T^2)");
  EXPECT_STREQ(verdict_text(fit(families[1], "communication")->verdict), "O(1)");
  EXPECT_FALSE(fit(families[1], "forward")) << "phases need the point's detail";
}

TEST(Scaling, ReadsPhasesNormsAndOwnersFromTheDetail) {
  PointDetail detail;
  detail.phases = {{"forward", {3, 5, 4, 3.5, 9}}, {"norm_reduce", {1, 2, 2}}};
  detail.norms = {{"local", {1, NAN, 7}}, {"reduce", {1, NAN, 8}}};
  detail.breakdown = {{"activations", 3 * 1048576.0}};
  RunData run;
  const auto read = [&](const std::string& name) {
    for (const ScalingQuantity& quantity : scaling_quantities())
      if (name == quantity.name) return quantity.read(run, 0, &detail);
    return -1.0;
  };
  EXPECT_EQ(read("forward"), 3.5) << "the fastest";
  EXPECT_EQ(read("norm all-reduce"), 2) << "the median where there is no fastest";
  EXPECT_EQ(read("norms"), 7);
  EXPECT_EQ(read("activations"), 3);
  EXPECT_TRUE(std::isnan(read("second backward")));
  detail.layers = {{"a", "linear", 1.5}, {"b", "linear", 2.5}};
  EXPECT_EQ(read("norms"), 4) << "the sum of layers, where they were watched";
}

TEST(Scaling, PointsWithoutAResultAreInNoFamily) {
  const RunData run =
      run_data_of_records(MOONSHARD_SOURCE_DIR "/examples/results/document_002_qwen1.5_1.8b");
  size_t points = 0;
  const auto families = scaling_families(run, "batch_size");
  for (const ScalingFamily& family : families) points += family.points.size();
  EXPECT_EQ(families.size(), 6u);
  EXPECT_EQ(points, 20u) << "24 points, 4 of them out of memory";
  EXPECT_EQ(families[0].name, "1, zero2");
}

}  // namespace
}  // namespace moonshard::viewer
