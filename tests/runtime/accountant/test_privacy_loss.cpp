// Brackets hold the truth, epsilon moves the right way, histories add up.
#include "runtime/accountant/privacy_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/gaussian.h"
#include "runtime/accountant/loss_sum.h"
#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"
#include "tests/runtime/accountant/random.h"

namespace moonshard::accountant {
namespace {

// Gaussians add up to a Gaussian whose epsilon is known; the sum here goes step by step, on the
// grid, as for sampled batches.
TEST(PrivacyLoss, SumsOfGaussiansHoldTheExactEpsilon) {
  Random random(11);
  for (int i = 0; i < 150; ++i) {
    const double steps = random.whole(1, 1e4), sigma = std::sqrt(steps) * random.spread(0.2, 20);
    const double delta = random.spread(1e-14, 1e-2), outside = 1e-6 * delta / steps;
    const double mu = std::sqrt(steps) / sigma, exact = gaussian_epsilon(mu, delta);
    if (exact == 0) continue;
    SCOPED_TRACE(fmt::format("sigma {} steps {} delta {} exact {}", sigma, steps, delta, exact));
    std::vector<LossPair> pairs;
    pairs.push_back({StepLoss(Neighbour::Removed, 1, sigma, outside),
                     StepLoss(Neighbour::Added, 1, sigma, outside), steps});
    const double spacing = exact / 200 / std::sqrt(steps);
    const double most_order = 2 / spacing;
    const LossSums sums = sum_losses(
        pairs, tilt_for_epsilon(pairs, Neighbour::Removed, exact, most_order),
        tilt_for_epsilon(pairs, Neighbour::Added, exact, most_order), spacing, Rounding::Upwards);
    for (const LossSum* sum : {&sums.removed, &sums.added}) {
      const double above = sum->epsilon_above(delta * (1 - 1e-6), 0);
      EXPECT_GE(above, exact);
      EXPECT_LE(above, exact * 1.01);
    }
    for (const Bracket& bracket :
         {prv_bracket({{1, sigma, steps}}, delta), pld_bracket({{1, sigma, steps}}, delta)}) {
      EXPECT_LE(bracket.lower, exact);
      EXPECT_GE(bracket.upper, exact);
    }
  }
}

TEST(PrivacyLoss, BracketsOverlapAndStayBelowRenyi) {
  Random random(12);
  for (int i = 0; i < 40; ++i) {
    const GaussianPhase phase{random.spread(1e-5, 1), random.spread(0.4, 20), random.whole(1, 1e5)};
    const double delta = random.spread(1e-12, 1e-3);
    SCOPED_TRACE(
        fmt::format("q {} sigma {} steps {} delta {}", phase.q, phase.sigma, phase.steps, delta));
    const Epsilon prv = epsilon_of("prv", {phase}, delta), pld = epsilon_of("pld", {phase}, delta);
    const double renyi = rdp_epsilon({phase}, delta).epsilon;
    EXPECT_EQ(prv.epsilon, prv.upper);
    EXPECT_EQ(pld.epsilon, pld.upper);
    EXPECT_LE(prv.lower, pld.upper);
    EXPECT_LE(pld.lower, prv.upper);
    EXPECT_LE(prv.upper, renyi);
    EXPECT_LE(pld.upper, renyi);
    EXPECT_TRUE(prv.guarantee && pld.guarantee);
  }
}

// Of any two schedules, the one with more steps, a larger rate or less noise costs no less. Grids
// differ from one to the other: theirs is a matter of one part in a million.
TEST(PrivacyLoss, EpsilonGrowsWithStepsRateAndLessNoise) {
  Random random(13);
  for (int i = 0; i < 400; ++i) {
    const bool grid = i % 10 == 0;
    const GaussianPhase base{random.spread(1e-4, 0.5), random.spread(0.5, 10),
                             random.whole(1, 1e4)};
    const double delta = random.spread(1e-9, 1e-4), factor = random.spread(1.01, 2);
    GaussianPhase more = base;
    if (i % 3 == 0) more.steps = std::ceil(base.steps * factor);
    if (i % 3 == 1) more.q *= factor;
    if (i % 3 == 2) more.sigma /= factor;
    more.q = std::min(more.q, 1.0);
    SCOPED_TRACE(fmt::format("q {} sigma {} steps {} delta {} against q {} sigma {} steps {}",
                             base.q, base.sigma, base.steps, delta, more.q, more.sigma,
                             more.steps));
    for (const char* method : {"rdp", "gdp", "prv", "pld"}) {
      if (!grid && method[0] == 'p') continue;
      const double less = epsilon_of(method, {base}, delta).epsilon;
      const double slack = method[0] == 'p' ? 2e-4 * less + 1e-6 : 1e-12 * less;
      EXPECT_GE(epsilon_of(method, {more}, delta).epsilon, less - slack) << method;
    }
  }
}

TEST(PrivacyLoss, EqualPhasesAreOneWhateverTheirOrder) {
  for (const char* method : {"rdp", "prv", "pld", "gdp"}) {
    const double whole = epsilon_of(method, {{0.01, 1.1, 1000}}, 1e-5).epsilon;
    const double parts =
        epsilon_of(method, {{0.01, 1.1, 300}, {0.5, 1, 0}, {0.01, 1.1, 700}}, 1e-5).epsilon;
    EXPECT_NEAR(parts, whole, 1e-12 * whole) << method;
    const double mixed =
        epsilon_of(method, {{0.01, 1.1, 1000}, {0.02, 2, 500}, {1, 40, 3}}, 1e-5).epsilon;
    const double turned =
        epsilon_of(method, {{1, 40, 3}, {0.02, 2, 500}, {0.01, 1.1, 1000}}, 1e-5).epsilon;
    EXPECT_NEAR(mixed, turned, 1e-12 * mixed) << method;
    EXPECT_GT(mixed, whole) << method;
  }
}

// Two phases that hardly differ cost what one in between does: the product of two spectra is that
// of the power.
TEST(PrivacyLoss, NearlyEqualPhasesCostWhatOneDoes) {
  for (const char* method : {"prv", "pld"}) {
    const double one = epsilon_of(method, {{0.01, 1.1, 2000}}, 1e-5).epsilon;
    const double two =
        epsilon_of(method, {{0.01, 1.1 + 1e-7, 1000}, {0.01, 1.1 - 1e-7, 1000}}, 1e-5).epsilon;
    EXPECT_NEAR(two, one, 1e-5) << method;
  }
}

TEST(PrivacyLoss, AMillionStepsAndTheEndsOfTheScale) {
  // The middle of prv's bracket is 6.0261.
  const Epsilon many = epsilon_of("pld", {{0.001, 1, 1e6}}, 1e-5);
  EXPECT_NEAR(many.epsilon, 6.0262, 0.001);
  EXPECT_LE(epsilon_of("prv", {{0.001, 1, 1e6}}, 1e-5).lower, many.epsilon);
  for (const char* method : {"prv", "pld"}) {
    EXPECT_EQ(epsilon_of(method, {}, 1e-5).epsilon, 0) << method;
    EXPECT_EQ(epsilon_of(method, {{0, 1, 10}}, 1e-5).epsilon, 0) << method;
    EXPECT_TRUE(std::isinf(epsilon_of(method, {{0.1, 0, 10}}, 1e-5).epsilon)) << method;
    EXPECT_TRUE(std::isinf(epsilon_of(method, {{0.1, 1e-200, 1}}, 1e-5).epsilon)) << method;
    const Epsilon huge = epsilon_of(method, {{0.5, 0.1, 1e9}}, 1e-5);
    EXPECT_EQ(huge.epsilon, rdp_epsilon({{0.5, 0.1, 1e9}}, 1e-5).epsilon);
    EXPECT_THAT(huge.note, testing::HasSubstr("Renyi"));
    // A delta far below what doubles can tell from 1: the tail is computed as one.
    const Epsilon tiny = epsilon_of(method, {{0.01, 1, 1000}}, 1e-30);
    EXPECT_LT(tiny.epsilon, rdp_epsilon({{0.01, 1, 1000}}, 1e-30).epsilon);
    EXPECT_GT(tiny.lower, 9);
  }
}

TEST(Gaussian, EpsilonAndDeltaAreInverse) {
  Random random(14);
  for (int i = 0; i < 300; ++i) {
    const double mu = random.spread(1e-3, 50), delta = random.spread(1e-200, 1e-1);
    const double epsilon = gaussian_epsilon(mu, delta);
    if (epsilon == 0) continue;
    EXPECT_NEAR(gaussian_log_delta(epsilon, mu), std::log(delta), 1e-8 * -std::log(delta))
        << mu << " " << delta;
  }
  EXPECT_EQ(gaussian_epsilon(1e-9, 1e-5), 0);
  EXPECT_TRUE(std::isinf(gaussian_epsilon(INFINITY, 1e-5)));
}

TEST(Epsilon, RefusesWhatAMethodCannotDo) {
  const auto message = [](const char* method, const std::vector<GaussianPhase>& phases,
                          const std::vector<double>& orders = {}) -> std::string {
    try {
      epsilon_of(method, phases, 1e-5, orders);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("gaussian", {{1, 1, 1}, {0.5, 1, 1}}),
              testing::HasSubstr("phase 2: expected q = 1 (every step sees every sample), got q = "
                                 "0.5"));
  EXPECT_THAT(message("zcdp", {{1, 1, 1}}), testing::HasSubstr("got 'zcdp'"));
  EXPECT_THAT(message("prv", {{1, 1, 1}}, {2.0}), testing::HasSubstr("beside the method rdp"));
  EXPECT_THAT(message("prv", {{1, 1, 1.5}}), testing::HasSubstr("whole number of steps"));
  EXPECT_THAT(message("pld", {{2, 1, 1}}), testing::HasSubstr("sampling rate q from 0 to 1"));
}

}  // namespace
}  // namespace moonshard::accountant
