// Overhead against a baseline: figures that are known by hand, partners in other runs, and points
// that have none.
#include "viewer/data/overhead.h"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/viewer/grid_run.h"
#include "tests/viewer/run_data_of_records.h"
#include "tests/viewer/sample_run.h"

namespace moonshard::viewer {
namespace {

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

constexpr double kGiB = 1 << 30;

// Three engines at two lengths, under the names that the sweep's document has for them.
std::filesystem::path make_llama(const std::filesystem::path& root) {
  std::vector<GridPoint> points;
  for (const auto& [mode, factor, more_gib] :
       {std::tuple{"none", 1.0, 0.0}, {"ghost", 1.625, -4.0}, {"flash", 1.5, 1.0}}) {
    for (const int length : {1024, 2048}) {
      points.push_back({{{"mode", mode}, {"seq_length", length}},
                        0.25 * length * factor,
                        (length / 64.0 + more_gib) * kGiB});
    }
  }
  return make_grid_run(root, "fsdp_llama3", {"mode", "seq_length"}, points,
                       {{"axis", "mode"}, {"value", "no_dp"}});
}

std::filesystem::path make_dit(const std::filesystem::path& root) {
  const std::vector<GridPoint> points = {{{{"mode", "none"}}, 128, 8 * kGiB},
                                         {{{"mode", "ghost"}}, 272, 11 * kGiB},
                                         {{{"mode", "flash"}}, 160, 8 * kGiB}};
  return make_grid_run(root, "dit_memory", {"mode"}, points,
                       {{"axis", "mode"}, {"value", "vanilla"}});
}

TEST(Overhead, OfAnAxisThatTheSweepNamedInItsOwnWords) {
  const TemporaryFolder root;
  const RunData run = run_data_of_records(make_llama(root.path()));
  EXPECT_EQ(run.baseline_value, "no_dp");
  EXPECT_EQ(default_baseline({&run}), on_axis("mode", "none"));
  expect_figures(run, {{1, 0, 0},
                       {1, 0, 0},
                       {1.625, -4096, -25},
                       {1.625, -4096, -12.5},
                       {1.5, 1024, 6.25},
                       {1.5, 1024, 3.125}});
}

TEST(Overhead, OfThreeAxesWithPointsOutOfMemory) {
  const TemporaryFolder root;
  std::vector<Expected> expected;
  for (const double accum : {1, 2, 4}) {
    for (const bool zero3 : {false, true}) {
      for (const double batch : {2, 4, 8, 16}) {
        const bool failed = batch == 16 && accum > 1;
        const double percent = -100 * 2 / (18 + 6.5 * batch + accum);
        expected.push_back(failed  ? Expected{NAN, NAN, NAN}
                           : zero3 ? Expected{1.01, -2048, percent}
                                   : Expected{1, 0, 0});
      }
    }
  }
  expect_figures(run_data_of_records(make_sharding_grid(root.path())), expected);
}

TEST(Overhead, OfOneAxis) {
  const TemporaryFolder root;
  expect_figures(run_data_of_records(make_dit(root.path())),
                 {{1, 0, 0}, {2.125, 3072, 37.5}, {1.25, 0, 0}});
}

TEST(Overhead, AgainstOnePointIsTheSameForAllRuns) {
  const TemporaryFolder root;
  const RunData a = run_data_of_records(make_llama(root.path()));
  const RunData b = run_data_of_records(make_dit(root.path()));
  const Baseline one{Baseline::Kind::Point, b.path, b.points[0].id, "", ""};
  const auto all = overheads({&a, &b}, one);
  for (const auto& run : all)
    for (const Overhead& overhead : run) EXPECT_EQ(overhead.baseline, (PointPlace{1, 0}));
  EXPECT_DOUBLE_EQ(all[0][0].time_ratio, 256.0 / 128);
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

TEST(Overhead, ConfigurationsAreComparedWithTheFirst) {
  const RunData list =
      small_run("a", {"mode"}, {{"ghost", 512, 4, 5}, {"flash", 512, 4, 4}, {"auto", 512, 4, 3}});
  const Baseline first = default_baseline({&list});
  EXPECT_EQ(first.kind, Baseline::Kind::Point);
  EXPECT_EQ(first.point, list.points[0].id);
  EXPECT_DOUBLE_EQ(overheads({&list}, first)[0][1].time_ratio, 4.0 / 5);
  const RunData scale =
      small_run("b", {"seq_length"}, {{"ghost", 512, 4, 5}, {"ghost", 1024, 4, 9}});
  EXPECT_EQ(default_baseline({&scale}).kind, Baseline::Kind::None) << "lengths have no first";
}

}  // namespace
}  // namespace moonshard::viewer
