// Overhead against a baseline: the figures of `runs:overhead()` on the stored results, partners in
// other runs, and points that have none.
#include "viewer/data/overhead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/viewer/run_data_of_records.h"

namespace moonshard::viewer {
namespace {

const std::filesystem::path kResults = MOONSHARD_SOURCE_DIR "/examples/results";

Baseline on_axis(const std::string& axis, const std::string& value) {
  return {Baseline::Kind::Axis, "", "", axis, value};
}

struct Expected {
  double time_ratio, memory_mib, memory_percent;
};

void expect_figures(const RunData& run, const std::vector<Expected>& expected) {
  const auto all = overheads({&run}, default_baseline({&run}));
  ASSERT_EQ(all.size(), 1u);
  ASSERT_EQ(all[0].size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Overhead& got = all[0][i];
    if (std::isnan(expected[i].time_ratio)) {
      EXPECT_FALSE(got.baseline);
      EXPECT_TRUE(std::isnan(got.time_ratio));
      EXPECT_EQ(got.why_none, "status oom: no figures to compare");
      continue;
    }
    EXPECT_NEAR(got.time_ratio, expected[i].time_ratio, 1e-14) << i;
    EXPECT_NEAR(got.memory_bytes, expected[i].memory_mib * 1048576, 1e-3) << i;
    EXPECT_NEAR(got.memory_percent, expected[i].memory_percent, 1e-9) << i;
  }
}

// The numbers of these three were printed by runs:overhead() of scripts/moonshard/runs.lua.
TEST(Overhead, OfAnAxisThatTheSweepNamedInItsOwnWords) {
  const RunData run = run_data_of_records(kResults / "document_000_llama3.1_8b");
  EXPECT_EQ(run.baseline_value, "no_dp");
  EXPECT_EQ(default_baseline({&run}), on_axis("mode", "none"));
  expect_figures(run, {{1, 0, 0},
                       {1, 0, 0},
                       {1, 0, 0},
                       {1.6375063591270789, -5768.14111328125, -16.776026109537696},
                       {1.6971521305674222, 560.01806640625, 1.5429492575785042},
                       {1.8687547306276828, 1120.00244140625, 2.1449510622855024},
                       {1.643368577960107, -5768.14111328125, -16.776026109537696},
                       {1.6952383629883792, 560.01806640625, 1.5429492575785042},
                       {1.873867930423027, 1120.00244140625, 2.1449510622855024}});
}

TEST(Overhead, OfThreeAxesWithPointsOutOfMemory) {
  const Expected none{NAN, NAN, NAN};
  expect_figures(run_data_of_records(kResults / "document_002_qwen1.5_1.8b"),
                 {{1, 0, 0},
                  {1, 0, 0},
                  {1, 0, 0},
                  {1, 0, 0},
                  {1.0136182660382582, -2212.892578125, -7.7743233265483607},
                  {1.0047642590924515, -2216.130859375, -5.1774289433572598},
                  {1.0043760239731643, -2219.94921875, -3.1037233066119048},
                  {1.0094488655443552, -2220.326171875, -1.7215767077072954},
                  {1, 0, 0},
                  {1, 0, 0},
                  {1, 0, 0},
                  none,
                  {1.0075316427404277, -2212.533203125, -6.4065095222515342},
                  {1.0062968166387818, -2215.79296875, -4.5336523087150011},
                  {1.002438098894733, -2219.94921875, -2.8609014611869199},
                  none,
                  {1, 0, 0},
                  {1, 0, 0},
                  {1, 0, 0},
                  none,
                  {1.0085959921981262, -2215.087890625, -5.6665175539195722},
                  {1.0070856045040464, -2216.83203125, -4.1490717362304022},
                  {1.0027869434581238, -2219.94921875, -2.7022575227901355},
                  none});
}

TEST(Overhead, OfOneAxis) {
  expect_figures(run_data_of_records(kResults / "document_004_dit_l"),
                 {{1, 0, 0},
                  {2.1260409764686226, 3406.8740234375, 38.408165260496844},
                  {2.2809923478656358, 3406.8740234375, 38.408165260496844},
                  {1.514685499264984, 10.76220703125, 0.12133017639638423},
                  {1.3974771479677577, 9.76220703125, 0.1100564501017608}});
}

TEST(Overhead, AgainstOnePointIsTheSameForAllRuns) {
  const RunData a = run_data_of_records(kResults / "document_000_llama3.1_8b");
  const RunData b = run_data_of_records(kResults / "document_004_dit_l");
  const Baseline one{Baseline::Kind::Point, b.path, b.points[0].id, "", ""};
  const auto all = overheads({&a, &b}, one);
  for (const auto& run : all)
    for (const Overhead& overhead : run) EXPECT_EQ(overhead.baseline, (PointPlace{1, 0}));
  EXPECT_DOUBLE_EQ(all[0][0].time_ratio, 198.43465832388029 / 115.72662580013275);
  EXPECT_DOUBLE_EQ(all[1][0].time_ratio, 1);
  EXPECT_EQ(describe(one, {&a, &b}), "point " + b.points[0].id + " of dit_memory");
  const auto gone = overheads({&a}, one);
  EXPECT_EQ(gone[0][0].why_none,
            "the baseline, point " + b.points[0].id + ", is not open any more");
  EXPECT_TRUE(std::isnan(gone[0][0].time_ratio));
}

struct Row {
  const char* mode;
  double length, batch, ms;
  const char* status = "ok";
};

RunData small_run(const std::string& path, const std::vector<std::string>& axes,
                  const std::vector<Row>& rows) {
  RunData run;
  run.path = run.name = path;
  run.axes = axes;
  RunBuilder builder(run);
  for (const Row& row : rows) {
    const size_t p = builder.add_point({"p" + std::to_string(run.points.size()), row.status, ""});
    builder.set(run.options, p, "mode", std::string_view(row.mode));
    builder.set(run.options, p, "seq_length", row.length);
    builder.set(run.options, p, "batch_size", row.batch);
    builder.set(run.metrics, p, "median_time_ms", row.ms);
  }
  builder.finish();
  return run;
}

TEST(Overhead, LooksInOtherRunsForWhatIsSweptInEither) {
  // Ghost over lengths at batch 4; plain training over batch sizes, at length 512 only.
  const RunData ghost =
      small_run("g", {"seq_length"}, {{"ghost", 512, 4, 20}, {"ghost", 1024, 4, 50}});
  const RunData plain = small_run("n", {"batch_size"}, {{"none", 512, 2, 6}, {"none", 512, 4, 10}});
  const auto all = overheads({&ghost, &plain}, on_axis("mode", "no_dp"));
  EXPECT_EQ(all[0][0].baseline, (PointPlace{1, 1})) << "same length, same batch";
  EXPECT_DOUBLE_EQ(all[0][0].time_ratio, 2);
  EXPECT_FALSE(all[0][1].baseline);
  EXPECT_EQ(all[0][1].why_none, "no point with mode = no_dp and the same other options");
  EXPECT_DOUBLE_EQ(all[1][0].time_ratio, 1);
}

TEST(Overhead, PrefersTheOwnRunAndThenTheFirst) {
  const RunData none = small_run("a", {"mode"}, {{"none", 512, 4, 5}});
  const RunData again = small_run("b", {"mode"}, {{"none", 512, 4, 8}});
  const RunData both = small_run("c", {"mode"}, {{"ghost", 512, 4, 20}, {"none", 512, 4, 10}});
  const RunData ghost = small_run("d", {"mode"}, {{"ghost", 512, 4, 20}});
  const auto all = overheads({&again, &none, &both, &ghost}, on_axis("mode", "none"));
  EXPECT_DOUBLE_EQ(all[2][0].time_ratio, 2);
  EXPECT_EQ(all[3][0].baseline, (PointPlace{0, 0}));
}

TEST(Overhead, SaysWhyThereIsNone) {
  const RunData run =
      small_run("a", {"mode", "seq_length"},
                {{"none", 512, 4, 5, "oom"}, {"ghost", 512, 4, 9}, {"ghost", 64, 4, 3}});
  const auto all = overheads({&run}, on_axis("mode", "none"));
  EXPECT_EQ(all[0][0].why_none, "status oom: no figures to compare");
  EXPECT_EQ(all[0][1].why_none, "its baseline, point p0, has status oom");
  EXPECT_EQ(all[0][2].why_none, "no point with mode = none and the same other options");
  EXPECT_EQ(overheads({&run}, {})[0][1].why_none, "no baseline is picked");
  EXPECT_TRUE(overheads({}, on_axis("mode", "none")).empty());
}

TEST(Overhead, FiguresThatAreMissingZeroOrNotFiniteGiveNone) {
  const RunData run =
      small_run("a", {"mode"}, {{"none", 1, 1, 0}, {"ghost", 1, 1, 9}, {"flash", 1, 1, NAN}});
  const auto all = overheads({&run}, on_axis("mode", "none"));
  EXPECT_TRUE(all[0][1].baseline);
  EXPECT_TRUE(std::isnan(all[0][1].time_ratio)) << "nothing divides by zero";
  EXPECT_TRUE(std::isnan(all[0][2].time_ratio));
  EXPECT_TRUE(std::isnan(all[0][1].memory_bytes));
  EXPECT_TRUE(std::isnan(all[0][1].throughput_ratio));
}

TEST(Overhead, NumbersAreBaselinesToo) {
  const RunData run =
      small_run("a", {"mode", "seq_length"},
                {{"ghost", 512, 4, 5}, {"ghost", 1024, 4, 9}, {"none", 1024, 4, 3}});
  const auto all = overheads({&run}, on_axis("seq_length", "512"));
  EXPECT_DOUBLE_EQ(all[0][1].time_ratio, 9.0 / 5);
  EXPECT_FALSE(all[0][2].baseline);
  const auto choices = baseline_choices({&run});
  EXPECT_THAT(choices,
              testing::ElementsAre(on_axis("mode", "ghost"), on_axis("mode", "none"),
                                   on_axis("seq_length", "512"), on_axis("seq_length", "1024")));
  EXPECT_EQ(default_baseline({&run}), on_axis("mode", "none"));
  EXPECT_EQ(describe(choices[2], {&run}), "seq_length = 512");
  const RunData ghosts = small_run("b", {"seq_length"}, {{"ghost", 512, 4, 5}});
  EXPECT_EQ(default_baseline({&ghosts}).kind, Baseline::Kind::None);
}

}  // namespace
}  // namespace moonshard::viewer
