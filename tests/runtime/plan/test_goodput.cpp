// How long runs take on ranks that fail: exact means, and histories around them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "runtime/base/check.h"
#include "runtime/plan/goodput.h"

namespace moonshard::plan {
namespace {

FailureModel long_run() {
  FailureModel model;
  model.step_s = 2;
  model.steps = 200'000;
  model.ranks = 1024;
  model.mtbf_s = 1024 * 6 * 3600.0;  // a failure of the job every six hours
  model.save_s = 20;
  model.restart_s = 300;
  model.histories = 400;
  model.seed = 3;
  return model;
}

TEST(Goodput, IsOfAllPartsOfTheRun) {
  for (const int64_t every : {50, 200, 500, 2000}) {
    FailureModel model = long_run();
    model.save_every = every;
    const Goodput mean = simulate_failures(model);
    EXPECT_EQ(mean.wall_s, expected_wall_s(model, every)) << every;
    EXPECT_NEAR(mean.wall_s, mean.useful_s + mean.saving_s + mean.lost_s + mean.restarting_s,
                1e-6 * mean.wall_s);
    EXPECT_LE(mean.wall_low_s, mean.wall_s);
    EXPECT_GE(mean.wall_high_s, mean.wall_s);
  }
}

struct DrawnMean {
  double mean = 0, error = 0;
};
DrawnMean mean_of_draws(const FailureModel& model, int64_t every, double Goodput::*field) {
  constexpr int kRuns = 4000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kRuns; ++i) {
    const double value = drawn_run(model, every, static_cast<uint64_t>(i)).*field;
    sum += value;
    squares += value * value;
  }
  const double mean = sum / kRuns;
  return {mean, std::sqrt(std::max(0.0, squares / kRuns - mean * mean) / kRuns)};
}

// Every mean against histories, to four of their standard errors: intervals that divide the run and
// others, saves that are written for longer than steps follow them, or than an interval takes.
TEST(Goodput, MeansAreThoseOfManyHistories) {
  struct Run {
    double mtbf_s, save_s, write_s, restart_s;
    int64_t steps, every;
  };
  for (const Run& run : {Run{6000, 20, 0, 300, 10'000, 500}, Run{6000, 20, 60, 300, 9'999, 500},
                         Run{3000, 5, 60, 900, 1'030, 100}, Run{3000, 5, 700, 900, 1'030, 100},
                         Run{900, 5, 250, 300, 1'030, 100}, Run{900, 0, 0, 0, 300, 1},
                         Run{2000, 5, 5000, 300, 1'030, 100}, Run{9000, 1e6, 60, 300, 800, 800},
                         Run{900, 700, 10, 30, 500, 100}}) {
    FailureModel model = long_run();
    model.mtbf_s = run.mtbf_s * static_cast<double>(model.ranks);
    model.save_s = run.save_s;
    model.write_s = run.write_s;
    model.restart_s = run.restart_s;
    model.steps = run.steps;
    model.save_every = run.every;
    const Goodput mean = simulate_failures(model);
    for (const auto field : {&Goodput::wall_s, &Goodput::saving_s, &Goodput::lost_s,
                             &Goodput::restarting_s, &Goodput::failures, &Goodput::lost_steps}) {
      const DrawnMean drawn = mean_of_draws(model, run.every, field);
      EXPECT_NEAR(mean.*field, drawn.mean, 4 * drawn.error + 1e-9 * (1 + mean.wall_s))
          << "mtbf " << run.mtbf_s << ", write " << run.write_s << ", every " << run.every;
    }
  }
}

// 512 ranks that fail every 50000 h, for an hour and a half: one run in sixty has a failure.
FailureModel rare_failures() {
  FailureModel model;
  model.step_s = 0.0568;
  model.steps = 100'000;
  model.ranks = 512;
  model.mtbf_s = 50'000 * 3600.0;
  model.save_s = 0.02;
  model.write_s = 60;
  model.restart_s = 3600;
  return model;
}

TEST(Goodput, OfRareFailuresIsTheSameForEverySeed) {
  FailureModel model = rare_failures();
  const Goodput first = simulate_failures(model);
  EXPECT_NEAR(first.failures, 0.0163, 0.0003);
  EXPECT_NEAR(100 * first.share(), 98.9, 0.1);
  for (model.seed = 1; model.seed < 8; ++model.seed) {
    const Goodput other = simulate_failures(model);
    EXPECT_EQ(other.share(), first.share()) << model.seed;
    EXPECT_EQ(other.lost_steps, first.lost_steps) << model.seed;
  }
}

TEST(Goodput, ARunIsNotSavedWhereThatCostsMoreThanItKeeps) {
  FailureModel model = rare_failures();
  model.save_s = 1e9;
  EXPECT_EQ(best_save_every(model), model.steps);
  EXPECT_EQ(simulate_failures(model).saving_s, 0);
  model.write_s = 0;
  EXPECT_EQ(best_save_every(model), model.steps);
}

TEST(Goodput, ARunWithoutAnEndNamesWhatIsTooLong) {
  const auto problem = [](const std::function<void(FailureModel&)>& change) -> std::string {
    FailureModel model = rare_failures();
    model.ranks = 16;
    model.mtbf_s = 100 * 3600.0;
    model.save_every = 100;
    change(model);
    try {
      simulate_failures(model);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_EQ(problem([](FailureModel&) {}), "");
  const std::string save = problem([](FailureModel& model) { model.save_s = 1e9; });
  EXPECT_THAT(save, HasSubstr("expected a run that ends, got more than 1000000 failures"));
  EXPECT_THAT(save, HasSubstr("option 'save_s': a save of 1e+09 s is too long for a failure every "
                              "22500 s"));
  EXPECT_THAT(problem([](FailureModel& model) { model.restart_s = 1e6; }),
              HasSubstr("option 'restart_s': a restart of 1e+06 s is too long"));
  EXPECT_THAT(problem([](FailureModel& model) {
                model.save_every = 0;
                model.steps = int64_t{1} << 40;
                model.write_s = 1e7;
              }),
              HasSubstr("option 'write_s': a save that is written in 1e+07 s is too long"));
  EXPECT_THAT(problem([](FailureModel& model) {
                model.steps = int64_t{1} << 40;
                model.save_every = model.steps;
              }),
              HasSubstr("option 'save_every': 1099511627776 steps of 0.0568 s without a save"));
  EXPECT_THAT(problem([](FailureModel& model) { model.steps = int64_t{1} << 40; }),
              HasSubstr("option 'steps': a run of"));
}

TEST(Goodput, ASaveThatIsBeingWrittenDoesNotCount) {
  FailureModel model = long_run();
  model.save_every = 200;
  const Goodput at_once = simulate_failures(model);
  model.write_s = 300;
  const Goodput later = simulate_failures(model);
  EXPECT_NEAR(later.lost_s - at_once.lost_s, at_once.failures * 300, 0.1 * at_once.lost_s);
  EXPECT_NEAR(later.wall_s / expected_wall_s(model, 200), 1, 0.03);
  // And the next save does not begin before it is done.
  model.save_every = 0;
  model.save_s = 0.001;
  EXPECT_EQ(best_save_every(model), 150);
}

TEST(Goodput, TheBestIntervalIsThatOfYoungAndDaly) {
  for (const double save : {1.0, 20.0, 120.0}) {
    FailureModel model = long_run();
    model.save_s = save;
    const double between = model.mtbf_s / static_cast<double>(model.ranks);
    const double young = std::sqrt(2 * save * between);
    const double x = std::sqrt(save / (2 * between));
    const double daly = young * (1 + x / 3 + x * x / 9) - save;
    const double best = static_cast<double>(best_save_every(model)) * model.step_s;
    EXPECT_NEAR(best / daly, 1, 0.02) << save;
    EXPECT_NEAR(best / young, 1, 0.15) << save;
    const Goodput chosen = simulate_failures(model);
    for (const double factor : {0.25, 4.0}) {
      FailureModel other = model;
      other.save_every = std::max<int64_t>(
          1, static_cast<int64_t>(factor * static_cast<double>(chosen.save_every)));
      EXPECT_LT(chosen.wall_s, simulate_failures(other).wall_s) << save << " " << factor;
    }
  }
}

TEST(Goodput, ASeedDrawsHowFarRunsLieApart) {
  FailureModel model = long_run();
  const Goodput first = simulate_failures(model);
  EXPECT_EQ(simulate_failures(model).wall_high_s, first.wall_high_s);
  model.seed = 4;
  EXPECT_NE(simulate_failures(model).wall_high_s, first.wall_high_s);
  EXPECT_EQ(simulate_failures(model).wall_s, first.wall_s);
  model.mtbf_s = 1e18;
  model.save_s = 0;
  EXPECT_NEAR(simulate_failures(model).share(), 1, 1e-9);
  model.step_s = 0;
  EXPECT_THROW(simulate_failures(model), UsageError);
  model = long_run();
  model.mtbf_s = 1024 * 20.0;  // a restart takes fifteen times as long as ranks last
  EXPECT_THROW(simulate_failures(model), UsageError);
}

}  // namespace
}  // namespace moonshard::plan
