// Small parts of the accountants, and the ends of their ranges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "runtime/accountant/calibrate.h"
#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/privacy_loss.h"
#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"
#include "tests/runtime/accountant/random.h"

namespace moonshard::accountant {
namespace {

using ::testing::HasSubstr;

TEST(Phases, AreMergedWhereBothRateAndNoiseAreEqual) {
  const std::vector<GaussianPhase> list =
      merged({{0.2, 2, 5}, {0.1, 2, 1}, {0, 1, 7}, {0.1, 1, 3}, {0.1, 2, 10}, {0.3, 1, 0}});
  ASSERT_EQ(list.size(), 3u) << "without those that cost nothing";
  const GaussianPhase expected[] = {{0.1, 1, 3}, {0.1, 2, 11}, {0.2, 2, 5}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(list[i].q, expected[i].q);
    EXPECT_EQ(list[i].sigma, expected[i].sigma);
    EXPECT_EQ(list[i].steps, expected[i].steps);
  }
  EXPECT_TRUE(merged({}).empty());
}

TEST(Phases, OfNoStepsCostNothingWhateverTheirNoise) {
  for (const char* method : {"rdp", "prv", "pld", "gdp"}) {
    EXPECT_EQ(epsilon_of(method, {{0.1, 0, 0}}, 1e-5).epsilon, 0) << method;
    EXPECT_EQ(epsilon_of(method, {{0.1, 0, 0}, {0.01, 1, 10}}, 1e-5).epsilon,
              epsilon_of(method, {{0.01, 1, 10}}, 1e-5).epsilon)
        << method;
  }
  EXPECT_EQ(epsilon_of("gaussian", {{1, 0, 0}, {0.5, 1, 0}, {0, 0, 5}}, 1e-5).epsilon, 0);
  EXPECT_EQ(epsilon_of("gdp", {{0, 0, 5}}, 1e-5).epsilon, 0);
}

// Where steps and releases alternate there are two phases, not thousands.
TEST(Phases, OfOneKindAddUpWhereverTheyStand) {
  History history;
  for (int i = 0; i < 3; ++i) {
    history.add_to_kind({0.01, 1.1, 2});
    history.add_to_kind({0.02, 1.1, 1});
    history.add_to_kind({0.01, 2.2, 4});
  }
  ASSERT_EQ(history.phases().size(), 3u);
  EXPECT_EQ(history.phases()[0].steps, 6);
  EXPECT_EQ(history.phases()[1].steps, 3);
  EXPECT_EQ(history.phases()[2].steps, 12);
  EXPECT_THROW(history.add_to_kind({0.01, 1.1, -1}), UsageError);
  EXPECT_EQ(history.num_steps(), 21);
}

TEST(Phases, BeyondThoseOfAnotherAreCountedByKind) {
  History longer, shorter;
  for (const GaussianPhase& phase :
       {GaussianPhase{0.01, 1, 5}, {0.02, 1, 3}, {0.01, 1, 2}, {0.01, 2, 1}})
    longer.add(phase);
  shorter.add({0.01, 1, 4});
  shorter.add({0.02, 1, 3});
  const History rest = longer.beyond(shorter);
  ASSERT_EQ(rest.phases().size(), 2u);
  EXPECT_EQ(rest.phases()[0].q, 0.01);
  EXPECT_EQ(rest.phases()[0].sigma, 1);
  EXPECT_EQ(rest.phases()[0].steps, 3);
  EXPECT_EQ(rest.phases()[1].sigma, 2);
  EXPECT_EQ(rest.num_steps(), 4);
  EXPECT_TRUE(shorter.beyond(longer).empty());
  EXPECT_EQ(longer.beyond({}).num_steps(), 11);
}

// Its continued fraction, from far down.
TEST(ScaledErfc, EqualsItsContinuedFractionOnBothSidesOfTheSwitch) {
  for (const double x : {3.0, 10.0, 19.999, 20.001, 25.0, 300.0}) {
    double rest = 0;
    for (int i = 400; i > 0; --i) rest = i / 2.0 / (x + rest);
    const double expected = 1 / (std::sqrt(std::numbers::pi) * (x + rest));
    EXPECT_NEAR(scaled_erfc(x), expected, 1e-10 * expected) << x;
  }
}

// Where delta alone covers all that can be told apart, which at epsilon 0 is erf(mu / sqrt(8)).
TEST(GaussianParts, EpsilonIsNothingFromADeltaOn) {
  for (const double mu : {1e-5, 0.01, 1.0}) {
    const double whole = std::erf(mu / std::sqrt(8.0));
    EXPECT_EQ(gaussian_epsilon(mu, whole * 1.01), 0) << mu;
    EXPECT_GT(gaussian_epsilon(mu, whole * 0.99), 0) << mu;
  }
}

TEST(RdpParts, TheOrdersAreOpacusAndFourPerOctaveMore) {
  const std::vector<double> orders = default_orders();
  ASSERT_EQ(orders.size(), 99u + 52 + 36);
  EXPECT_NEAR(orders[0], 1.1, 1e-15);
  EXPECT_NEAR(orders[98], 10.9, 1e-12);
  EXPECT_EQ(orders[99], 12);
  EXPECT_EQ(orders[150], 63);
  EXPECT_EQ(orders[151], 64);
  EXPECT_EQ(orders[152], 80);
  EXPECT_EQ(orders[155], 128);
  EXPECT_EQ(orders.back(), 28672);
}

// By the trapezoidal rule; y is how much likelier x is with the sample, less 1.
double rdp_by_definition(double q, double sigma, double order) {
  const double step = std::min(sigma, sigma * sigma) / 16;
  double rest = 0;
  for (double x = -14 * sigma; x < order + 14 * sigma; x += step) {
    const double y = q * std::expm1((2 * x - 1) / (2 * sigma * sigma));
    rest +=
        std::exp(-x * x / (2 * sigma * sigma)) * (std::expm1(order * std::log1p(y)) - order * y);
  }
  return std::log1p(rest * step / (sigma * std::sqrt(2 * std::numbers::pi))) / (order - 1);
}

// Three ways to compute it, by rate and noise; all of them are the same number.
TEST(RdpParts, RealOrdersAreTheIntegralWhateverComputesThem) {
  for (const double q : {1e-5, 5e-4, 0.01, 0.4}) {
    for (const double sigma : {0.2, 0.24, 0.6, 1.0, 4.0}) {
      for (const double order : {1.5, 2.0, 2.5, 3.3, 5.0}) {
        if (order / (sigma * sigma) * order > 300) continue;  // beyond doubles
        const double expected = rdp_by_definition(q, sigma, order);
        const double got = rdp_of_step(q, sigma, order);
        // Never below, and above only where no series converges: then on the line between whole
        // orders.
        EXPECT_GE(got, expected * (1 - 1e-7) - 1e-15) << q << " " << sigma << " " << order;
        EXPECT_LE(got, expected * (1 + 1e-6) + 1e-15) << q << " " << sigma << " " << order;
      }
    }
  }
}

// Below a quarter of the bound the series is all there is; its terms fall slowly at small orders.
TEST(RdpParts, TheSeriesIsRightToItsLastTerms) {
  for (const double q : {0.1, 0.4}) {
    for (const double sigma : {0.2, 0.24}) {
      const double expected = rdp_by_definition(q, sigma, 1.1);
      EXPECT_NEAR(rdp_of_step(q, sigma, 1.1), expected, 1e-10 * expected) << q << " " << sigma;
    }
  }
}

// Where a moment is 1 and less than a rounding more nothing may be lost, because steps are many. To
// second order in q the divergence is order / 2 times that of chi square.
TEST(RdpParts, SmallRatesAreNotRoundedToNothing) {
  for (const double q : {1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10}) {
    for (const double sigma : {0.8, 3.0, 30.0}) {
      for (const double order : default_orders()) {
        if (order > 12) break;
        const double expected = order / 2 * q * q * std::expm1(1 / (sigma * sigma));
        // Third order, and what differences of about q / sigma lose.
        const double share = 200 * q + 1e-15 * sigma / q + 1e-6;
        ASSERT_NEAR(rdp_of_step(q, sigma, order), expected, share * expected)
            << q << " " << sigma << " " << order;
      }
    }
  }
  // Together they are a Gaussian, nearly.
  const double exact = gaussian_epsilon(central_limit_mu({{1e-9, 1, 1e12}}), 1e-5);
  EXPECT_GT(exact, 1e-3);
  EXPECT_GT(epsilon_of("rdp", {{1e-9, 1, 1e12}}, 1e-5).epsilon, exact);
}

// Moments beyond the largest double: in logarithms all the way.
TEST(RdpParts, LargeMomentsOfSmallRatesAreTheIntegral) {
  const double q = 1e-4, sigma = 0.3, step = sigma * sigma / 16;
  for (const double order : {7.5, 9.5, 10.9}) {
    const auto log_term = [&](double x) {
      const double y = q * std::expm1((2 * x - 1) / (2 * sigma * sigma));
      return order * std::log1p(y) - x * x / (2 * sigma * sigma);
    };
    double sum = 0;
    for (double x = -3; x < order + 3; x += step) sum += std::exp(log_term(x) - log_term(order));
    const double log_moment =
        log_term(order) + std::log(sum * step / (sigma * std::sqrt(2 * std::numbers::pi)));
    EXPECT_NEAR(rdp_of_step(q, sigma, order), log_moment / (order - 1), 1e-8 * log_moment) << order;
  }
}

TEST(Brackets, AreAsNarrowAsTheirGrids) {
  const Bracket pld = pld_bracket({{0.01, 1, 1000}}, 1e-5);
  EXPECT_LT(pld.upper - pld.lower, 0.04);
  const Bracket many = pld_bracket({{0.001, 1, 100'000}}, 1e-5);
  EXPECT_LT(many.upper - many.lower, 0.04);
  const Bracket prv = prv_bracket({{0.01, 1, 1000}}, 1e-5);
  EXPECT_GT(prv.upper - prv.lower, 0.02) << "twice the error it allows itself";
  EXPECT_LT(prv.upper - prv.lower, 0.021);
  EXPECT_LE(prv.lower, pld.upper);
  EXPECT_GE(prv.upper, pld.lower);
  // Of a budget far below 1, too.
  const Bracket small = pld_bracket({{0.01, 8, 100}}, 1e-5);
  EXPECT_GT(small.lower, 0);
  EXPECT_LT(small.upper, 0.2);
  EXPECT_LT(small.lower, 0.99 * small.upper);
}

// Phases that see every sample are one Gaussian, however many there are.
TEST(Brackets, OfWholeBatchesAreThoseOfOneGaussian) {
  std::vector<GaussianPhase> phases;
  for (int i = 0; i < 300; ++i) phases.push_back({1, 40 + 0.1 * i, 1});
  const double exact = gaussian_epsilon(exact_mu(phases), 1e-5);
  const Bracket pld = pld_bracket(phases, 1e-5);
  EXPECT_EQ(pld.note, "");
  EXPECT_GE(pld.upper, exact);
  EXPECT_LE(pld.upper, exact * 1.001);
  EXPECT_LE(pld.lower, exact);
}

// Each of the limits of the grid alone sends the question to Renyi's bound.
TEST(Brackets, BeyondTheGridAreRenyis) {
  for (const std::vector<GaussianPhase>& phases :
       {std::vector<GaussianPhase>{{0.5, 0.03, 2}}, {{1e-9, 0.019, 1}}, {{1e-9, 1, 2e8}}}) {
    for (const char* method : {"prv", "pld"}) {
      const Epsilon epsilon = epsilon_of(method, phases, 1e-5);
      if (epsilon.epsilon == 0) continue;
      EXPECT_THAT(epsilon.note, HasSubstr("Renyi"));
      EXPECT_EQ(epsilon.epsilon, rdp_epsilon(phases, 1e-5).epsilon);
      EXPECT_EQ(epsilon.lower, 0);
    }
  }
}

TEST(Brackets, HoldAsManyKindsOfStepsAsTheySay) {
  std::vector<GaussianPhase> phases;
  for (int i = 0; i < 256; ++i) phases.push_back({0.5, 60 + 0.1 * i, 1});
  EXPECT_EQ(prv_bracket(phases, 1e-5).note, "");
  phases.push_back({0.5, 50, 1});
  EXPECT_THAT(prv_bracket(phases, 1e-5).note, HasSubstr("beyond the range of the grid"));
}

// The search looks at a few orders near the best one: it must follow that to either end.
TEST(CalibrateParts, RdpFindsTheBestOrderFromEitherSide) {
  for (const double target : {0.02, 0.3, 2.0, 15.0, 80.0, 400.0, 2000.0}) {
    for (const double q : {0.01, 1.0}) {
      const double sigma = calibrate_sigma("rdp", q, 50, 1e-5, target);
      EXPECT_GE(rdp_epsilon({{q, sigma, 50}}, 1e-5).epsilon, target * (1 - 1e-5)) << target;
    }
  }
}

TEST(CalibrateParts, ClosedFormsAreMetToTenDigits) {
  for (const double target : {0.1, 1.0, 10.0}) {
    for (const char* method : {"gaussian", "gdp"}) {
      const double sigma = calibrate_sigma(method, 1, 20, 1e-6, target);
      const double epsilon = epsilon_of(method, {{1, sigma, 20}}, 1e-6).epsilon;
      EXPECT_LE(epsilon, target);
      EXPECT_GE(epsilon, target * (1 - 2e-10)) << method << " " << target;
    }
  }
}

// From noise that Renyi's bound asks for down to what the grid does, on a line of logarithms.
TEST(CalibrateParts, PldEndsWithinATenThousandthOfTheTarget) {
  for (const double target : {0.001, 0.5, 3.0}) {
    const double sigma = calibrate_sigma("pld", 0.02, 20, 1e-5, target);
    const double epsilon = epsilon_of("pld", {{0.02, sigma, 20}}, 1e-5).epsilon;
    EXPECT_LE(epsilon, target);
    EXPECT_GE(epsilon, target * (1 - 1.01e-4));
  }
}

// The search by pld begins at Renyi's noise, and ends there if that is near enough.
TEST(CalibrateParts, PldTakesRenyisNoiseWhereTheToleranceAllows) {
  CalibrateOptions options;
  options.epsilon_tolerance = 1;
  EXPECT_EQ(calibrate_sigma("pld", 0.02, 20, 1e-5, 2, options),
            calibrate_sigma("rdp", 0.02, 20, 1e-5, 2));
}

// Renyi's noise for a budget that hardly differs from none costs nothing: there is no line through
// the logarithms of its epsilon.
TEST(CalibrateParts, PldLeavesAnEndWhoseEpsilonIsNothing) {
  const double target = 1e-5, delta = 1e-5;
  const double renyi = calibrate_sigma("rdp", 1, 1, delta, target);
  EXPECT_EQ(epsilon_of("pld", {{1, renyi, 1}}, delta).epsilon, 0);
  CalibrateOptions options;
  options.epsilon_tolerance = target / 4;
  const double sigma = calibrate_sigma("pld", 1, 1, delta, target, options);
  EXPECT_LE(gaussian_epsilon(1 / sigma, delta), target);
  EXPECT_GE(gaussian_epsilon(1 / sigma, delta), target * 0.74);
}

// The first rate that is tried is the middle of all, by logarithms.
TEST(CalibrateParts, ARateThatMeetsTheTargetExactlyIsTaken) {
  const double middle = std::sqrt(kLeastRate);
  const double target = epsilon_of("gdp", {{middle, 0.2, 4}}, 1e-5).epsilon;
  ASSERT_GT(target, 0.1);
  EXPECT_EQ(calibrate_q("gdp", 0.2, 4, 1e-5, target), middle);
}

TEST(CalibrateParts, AToleranceIsKept) {
  CalibrateOptions options;
  options.epsilon_tolerance = 0.25;
  const double rough = calibrate_sigma("rdp", 0.01, 100, 1e-5, 1, options);
  const double epsilon = rdp_epsilon({{0.01, rough, 100}}, 1e-5).epsilon;
  EXPECT_LE(epsilon, 1);
  EXPECT_GE(epsilon, 0.75);
  options.epsilon_tolerance = -1;
  EXPECT_THROW(calibrate_sigma("rdp", 0.01, 100, 1e-5, 1, options), UsageError);
}

}  // namespace
}  // namespace moonshard::accountant
