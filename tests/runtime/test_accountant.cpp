// The accountant against figures of others: tests/data/accountant_rdp.json names the source of
// each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/accountant/rdp.h"
#include "runtime/core/check.h"
#include "runtime/records/json.h"

namespace moonshard::accountant {
namespace {

using records::Json;

const Json& figures() {
  static const Json list =
      records::read_json_file(MOONSHARD_SOURCE_DIR "/tests/data/accountant_rdp.json");
  return list;
}

std::vector<GaussianPhase> phases_of(const Json& row) {
  return {{row["q"].get<double>(), row["sigma"].get<double>(), row["steps"].get<double>()}};
}

bool is_from(const Json& row, const std::string& word) {
  return row["source"].get<std::string>().find(word) != std::string::npos;
}

double tolerance_of(const Json& row) {
  if (row.contains("tol_abs")) return row["tol_abs"].get<double>();
  return row["tol_rel"].get<double>() * row["epsilon"].get<double>();
}

TEST(Rdp, EqualsOpacus) {
  int count = 0;
  for (const Json& row : figures()) {
    if (!is_from(row, "opacus RDPAccountant") && !is_from(row, "pytorch/opacus")) continue;
    const RdpEpsilon got = rdp_epsilon(phases_of(row), row["delta"]);
    EXPECT_NEAR(got.epsilon, row["epsilon"].get<double>(), tolerance_of(row)) << row.dump();
    if (row.contains("best_order")) {
      EXPECT_NEAR(got.best_order, row["best_order"].get<double>(), 1e-9) << row.dump();
    }
    ++count;
  }
  EXPECT_EQ(count, 19);
}

TEST(Rdp, WholeOrdersEqualSixtyDigitSums) {
  std::vector<double> orders;
  for (int order = 2; order <= 64; ++order) orders.push_back(order);
  int count = 0;
  for (const Json& row : figures()) {
    if (row["method"] != "RDP_INT") continue;
    const RdpEpsilon got = rdp_epsilon(phases_of(row), row["delta"], orders);
    EXPECT_NEAR(got.epsilon, row["epsilon"].get<double>(), tolerance_of(row)) << row.dump();
    EXPECT_EQ(got.best_order, row["best_order"].get<double>()) << row.dump();
    ++count;
  }
  EXPECT_EQ(count, 18);
}

// dp_accounting adds up the series of real orders by absolute values: an upper bound there, equal
// at whole orders.
TEST(Rdp, IsNeverAboveDpAccountingAndEqualAtItsWholeOrders) {
  int count = 0, whole = 0;
  for (const Json& row : figures()) {
    if (!is_from(row, "dp_accounting RdpAccountant")) continue;
    const double expected = row["epsilon"];
    EXPECT_LE(rdp_epsilon(phases_of(row), row["delta"]).epsilon, expected + tolerance_of(row))
        << row.dump();
    const double order = row["best_order"];
    if (order == std::floor(order)) {
      EXPECT_NEAR(rdp_epsilon(phases_of(row), row["delta"], {order}).epsilon, expected,
                  tolerance_of(row));
      ++whole;
    }
    ++count;
  }
  EXPECT_EQ(count, 36);
  EXPECT_GE(whole, 6);
}

TEST(Rdp, DenseOrdersFindThePublishedEpsilonOfTheGaussian) {
  std::vector<double> orders;
  for (int i = 1; i < 10000; ++i) orders.push_back(1 + i / 100.0);
  int count = 0;
  for (const Json& row : figures()) {
    if (!is_from(row, "dense orders")) continue;
    EXPECT_NEAR(rdp_epsilon(phases_of(row), row["delta"], orders).epsilon,
                row["epsilon"].get<double>(), tolerance_of(row));
    ++count;
  }
  EXPECT_EQ(count, 1);
}

TEST(Rdp, EveryFigureOfTheFileIsUsed) {
  EXPECT_EQ(figures().size(), 19u + 18u + 36u + 1u);
}

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
