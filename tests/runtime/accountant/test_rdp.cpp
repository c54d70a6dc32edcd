// Renyi's accountant beside the figures of test_vectors.cpp: limits, order, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

TEST(Rdp, PhasesAddUp) {
  const RdpEpsilon whole = rdp_epsilon({{0.01, 1.0, 1000}}, 1e-5);
  const RdpEpsilon parts = rdp_epsilon({{0.01, 1.0, 400}, {0.01, 1.0, 600}}, 1e-5);
  EXPECT_NEAR(whole.epsilon, parts.epsilon, 1e-12);
  EXPECT_GT(rdp_epsilon({{0.01, 1.0, 1000}, {0.02, 1.0, 10}}, 1e-5).epsilon, whole.epsilon);
}

TEST(Rdp, GrowsWithTheOrderAlsoBetweenWholeOnes) {
  for (const double q : {1e-6, 1e-3, 0.1, 0.9, 0.999}) {
    for (const double sigma : {0.002, 0.05, 0.3, 1.0, 8.0, 100.0, 1e5}) {
      double before = 0;
      for (const double order :
           {1.05, 1.5, 2.0, 2.5, 3.0, 7.7, 8.0, 20.3, 21.0, 63.0, 63.5, 64.0}) {
        const double rdp = rdp_of_step(q, sigma, order);
        // One double's rounding of A = 1 + x is all that may be lost.
        EXPECT_GE(rdp, before * (1 - 1e-9) - 1e-13) << q << " " << sigma << " " << order;
        EXPECT_LE(rdp, order / (2 * sigma * sigma) * (1 + 1e-9) + 1e-13) << "more than unsampled";
        EXPECT_TRUE(std::isfinite(rdp));
        before = rdp;
      }
    }
  }
}

// With little noise powers of the density's ratio leave the range of double precision.
TEST(Rdp, LittleNoiseIsFoundBetweenWholeOrders) {
  for (const double sigma : {0.25, 0.3, 0.4, 1.0}) {
    for (const double q : {1e-3, 0.01, 0.3}) {
      for (const double order : {2.0, 7.0, 8.0, 12.0}) {
        const auto log_moment = [&](double at) { return rdp_of_step(q, sigma, at) * (at - 1); };
        const double line = (log_moment(order) + log_moment(order + 1)) / 2;
        const double half = log_moment(order + 0.5);
        EXPECT_LT(half, line * (1 - 1e-5)) << sigma << " " << q << " " << order;
        // What it is near a whole order, the sum for whole orders says.
        EXPECT_NEAR(log_moment(order + 1e-9) / log_moment(order), 1, 1e-6);
        EXPECT_NEAR(log_moment(order + 1 - 1e-9) / log_moment(order + 1), 1, 1e-6);
      }
    }
  }
}

TEST(Rdp, KnowsTheEndsOfTheScale) {
  EXPECT_TRUE(std::isinf(rdp_epsilon({{0.01, 0, 10}}, 1e-5).epsilon)) << "no noise";
  EXPECT_EQ(rdp_epsilon({{0, 1, 10}}, 1e-5).epsilon, 0);
  EXPECT_EQ(rdp_epsilon({}, 1e-5).epsilon, 0);
  EXPECT_EQ(rdp_epsilon({{0.01, 1, 0}}, 1e-5).epsilon, 0);
  EXPECT_NEAR(rdp_of_step(1, 2, 5.5), 5.5 / 8, 1e-15);
  EXPECT_TRUE(std::isfinite(rdp_epsilon({{0.01, 1e-3, 1e9}}, 1e-5).epsilon));
  EXPECT_TRUE(std::isinf(rdp_epsilon({{0.01, 1e-200, 1}}, 1e-5).epsilon)) << "as good as none";
  EXPECT_EQ(rdp_epsilon({{0.5, 1e200, 1e6}}, 1e-5).epsilon, 0);
  EXPECT_TRUE(std::isinf(rdp_epsilon({{1e-300, 0.5, 1e308}, {1, 0.1, 1e308}}, 1e-5).epsilon));
}

TEST(Rdp, RefusesNumbersThatMakeNoSense) {
  const auto message = [](const std::vector<GaussianPhase>& phases, double delta,
                          const std::vector<double>& orders = default_orders()) -> std::string {
    try {
      rdp_epsilon(phases, delta, orders);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({{0.5, 1, 1}, {1.5, 1, 1}}, 1e-5),
              testing::HasSubstr("phase 2: expected a sampling rate q from 0 to 1, got 1.5"));
  EXPECT_THAT(message({{NAN, 1, 1}}, 1e-5), testing::HasSubstr("got nan"));
  EXPECT_THAT(message({{0.5, -1, 1}}, 1e-5), testing::HasSubstr("sigma of at least 0, got -1"));
  EXPECT_THAT(message({{0.5, INFINITY, 1}}, 1e-5), testing::HasSubstr("sigma"));
  EXPECT_THAT(message({{0.5, 1, -3}}, 1e-5), testing::HasSubstr("steps of at least 0, got -3"));
  EXPECT_THAT(message({{0.5, 1, INFINITY}}, 1e-5), testing::HasSubstr("finite number of steps"));
  EXPECT_THAT(message({}, 0), testing::HasSubstr("delta above 0 and below 1, got 0"));
  EXPECT_THAT(message({}, 1), testing::HasSubstr("delta"));
  EXPECT_THAT(message({{0.5, 1, 1}}, 1e-5, {1.0}), testing::HasSubstr("orders above 1"));
  EXPECT_THAT(message({{0.5, 1, 1}}, 1e-5, {}), testing::HasSubstr("at least one order"));
}

}  // namespace
}  // namespace moonshard::accountant
