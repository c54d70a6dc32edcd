// Calibration never overshoots, and does not stop short.
#include "runtime/accountant/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/accountant/epsilon.h"
#include "runtime/base/check.h"
#include "tests/runtime/accountant/random.h"

namespace moonshard::accountant {
namespace {

// Sigma, steps and rate in turn. What another method than the one searched with says is no test:
// the answer's own epsilon is computed again.
void calibrate_at_random(const char* method, uint64_t seed, int count, double most_steps) {
  Random random(seed);
  for (int i = 0; i < count; ++i) {
    double q = random.spread(1e-4, 1), sigma = random.spread(0.5, 8);
    double steps = random.whole(1, most_steps);
    const double delta = random.spread(1e-9, 1e-3), target = random.spread(0.5, 20);
    SCOPED_TRACE(fmt::format("{}: q {} sigma {} steps {} delta {} target {}", method, q, sigma,
                             steps, delta, target));
    bool reachable = true;
    try {
      if (i % 3 == 1) {
        steps = calibrate_steps(method, q, sigma, delta, target);
      } else if (i % 3 == 2) {
        q = calibrate_q(method, sigma, steps, delta, target);
      } else {
        sigma = calibrate_sigma(method, q, steps, delta, target);
      }
    } catch (const UsageError& error) {
      // Only when not even one step, or the smallest rate, keeps the budget.
      const GaussianPhase least{i % 3 == 2 ? kLeastRate : q, sigma, i % 3 == 1 ? 1 : steps};
      ASSERT_NE(i % 3, 0) << error.what();
      ASSERT_GT(epsilon_of(method, {least}, delta).epsilon, target) << error.what();
      reachable = false;
    }
    if (reachable) {
      ASSERT_LE(epsilon_of(method, {{q, sigma, steps}}, delta).epsilon, target);
    }
  }
}

// Four parts, so that two processors share them.
TEST(Calibrate, NoneOfTenThousandOvershootsPartOne) {
  calibrate_at_random("rdp", 1, 2500, 1e6);
}
TEST(Calibrate, NoneOfTenThousandOvershootsPartTwo) {
  calibrate_at_random("rdp", 2, 2500, 1e6);
}
TEST(Calibrate, NoneOfTenThousandOvershootsPartThree) {
  calibrate_at_random("rdp", 3, 2500, 1e6);
}
TEST(Calibrate, NoneOfTenThousandOvershootsPartFour) {
  calibrate_at_random("rdp", 4, 2500, 1e6);
}
TEST(Calibrate, NoneByPrivacyLossOvershoots) {
  calibrate_at_random("pld", 5, 9, 1000);
  calibrate_at_random("prv", 6, 3, 300);
}
TEST(Calibrate, NoneInClosedFormOvershoots) {
  calibrate_at_random("gdp", 7, 3000, 1e6);
}

// Noise for a small budget is what the budget needs, not what a short list of orders can show: by
// rdp at most a third more than by the tightest bound, over the whole range of targets.
TEST(Calibrate, SmallAndLargeTargetsNeedNoAbsurdNoise) {
  for (const double target : {0.001, 0.01, 0.1, 1.0, 10.0, 100.0}) {
    const double pld = calibrate_sigma("pld", 0.01, 100, 1e-5, target);
    const double rdp = calibrate_sigma("rdp", 0.01, 100, 1e-5, target);
    const double epsilon = epsilon_of("pld", {{0.01, pld, 100}}, 1e-5).epsilon;
    EXPECT_LE(epsilon, target);
    EXPECT_GE(epsilon, target * 0.999) << target;
    EXPECT_GE(rdp, pld * 0.999) << target;
    EXPECT_LE(rdp, pld * 1.35) << target;
  }
}

TEST(Calibrate, GoesAsFarAsTheBudgetAllows) {
  const double sigma = calibrate_sigma("rdp", 0.01, 1000, 1e-5, 2);
  EXPECT_GT(epsilon_of("rdp", {{0.01, sigma * 0.9999, 1000}}, 1e-5).epsilon, 2);
  const double steps = calibrate_steps("rdp", 0.01, 1.1, 1e-5, 2);
  EXPECT_GT(epsilon_of("rdp", {{0.01, 1.1, steps + 1}}, 1e-5).epsilon, 2);
  const double q = calibrate_q("rdp", 1.1, 1000, 1e-5, 2);
  EXPECT_GT(epsilon_of("rdp", {{q * 1.0001, 1.1, 1000}}, 1e-5).epsilon, 2);
  EXPECT_EQ(calibrate_q("gaussian", 10, 10, 1e-6, 5), 1);
  EXPECT_EQ(calibrate_steps("rdp", 0, 1, 1e-5, 1), kMostSteps) << "no sample is ever seen";
  EXPECT_EQ(calibrate_sigma("prv", 0.5, 0, 1e-5, 1), 0) << "nothing is published";
  // The tighter the accountant, the less noise.
  EXPECT_LT(calibrate_sigma("pld", 0.01, 1000, 1e-5, 2), sigma);
}

TEST(Calibrate, SaysWhatCannotBeReached) {
  const auto message = [](auto search) -> std::string {
    try {
      search();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message([] { calibrate_steps("rdp", 0.5, 0.3, 1e-5, 0.1); }),
              testing::HasSubstr("one step gives"));
  EXPECT_THAT(message([] { calibrate_sigma("rdp", 1, 1e12, 1e-10, 0.01); }),
              testing::HasSubstr("by rdp the least is"));
  EXPECT_THAT(message([] { calibrate_q("gaussian", 1, 10, 1e-5, 0.1); }),
              testing::HasSubstr("gaussian knows q = 1 alone"));
  EXPECT_THAT(message([] { calibrate_q("rdp", 0, 10, 1e-5, 0.1); }),
              testing::HasSubstr("expected a target epsilon that sampling can reach"));
  EXPECT_THAT(message([] { calibrate_sigma("gaussian", 0.5, 10, 1e-5, 1); }),
              testing::HasSubstr("expected q = 1"));
  EXPECT_THAT(message([] { calibrate_sigma("moments", 0.5, 10, 1e-5, 1); }),
              testing::HasSubstr("a method of rdp, prv, pld, gdp, gaussian, got 'moments'"));
  for (const double target : {0.0, -1.0, double(NAN), double(INFINITY)}) {
    EXPECT_THAT(message([&] { calibrate_sigma("rdp", 0.5, 10, 1e-5, target); }),
                testing::HasSubstr("finite target epsilon above 0"));
  }
  EXPECT_THAT(message([] { calibrate_sigma("rdp", 0.5, 10.5, 1e-5, 1); }),
              testing::HasSubstr("whole number of steps"));
}

}  // namespace
}  // namespace moonshard::accountant
