// Every figure of tests/data/accountant.json at its own tolerance. None is left out: the last test
// counts.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "runtime/accountant/calibrate.h"
#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/rdp.h"
#include "tests/runtime/accountant/vectors.h"

namespace moonshard::accountant {
namespace {

void expect_epsilon(const char* method, const Json& row) {
  EXPECT_NEAR(epsilon_of(method, phases_of(row), row["delta"]).epsilon,
              row["epsilon"].get<double>(), tolerance_of(row))
      << row.dump();
}

TEST(Vectors, RdpEqualsOpacus) {
  std::vector<Json> rows = figures("RDP", "opacus RDPAccountant");
  for (const Json& row : figures("RDP", "pytorch/opacus")) rows.push_back(row);
  ASSERT_EQ(rows.size(), 19u);
  for (const Json& row : rows) {
    expect_epsilon("rdp", row);
    if (row.contains("best_order")) {
      EXPECT_NEAR(epsilon_of("rdp", phases_of(row), row["delta"]).best_order,
                  row["best_order"].get<double>(), 1e-9)
          << row.dump();
    }
  }
}

TEST(Vectors, RdpOfWholeOrdersEqualsSixtyDigitSums) {
  std::vector<double> orders;
  for (int order = 2; order <= 64; ++order) orders.push_back(order);
  const std::vector<Json> rows = figures("RDP_INT");
  ASSERT_EQ(rows.size(), 18u);
  for (const Json& row : rows) {
    const Epsilon got = epsilon_of("rdp", phases_of(row), row["delta"], orders);
    EXPECT_NEAR(got.epsilon, row["epsilon"].get<double>(), tolerance_of(row)) << row.dump();
    EXPECT_EQ(got.best_order, row["best_order"].get<double>()) << row.dump();
  }
}

// dp_accounting adds up the series of real orders by absolute values: an upper bound there, equal
// at whole orders.
TEST(Vectors, RdpIsNeverAboveDpAccountingAndEqualAtItsWholeOrders) {
  const std::vector<Json> rows = figures("RDP", "dp_accounting RdpAccountant");
  ASSERT_EQ(rows.size(), 36u);
  int whole = 0;
  for (const Json& row : rows) {
    const double expected = row["epsilon"];
    EXPECT_LE(rdp_epsilon(phases_of(row), row["delta"]).epsilon, expected + tolerance_of(row))
        << row.dump();
    const double order = row["best_order"];
    if (order != std::floor(order)) continue;
    EXPECT_NEAR(rdp_epsilon(phases_of(row), row["delta"], {order}).epsilon, expected,
                tolerance_of(row))
        << row.dump();
    ++whole;
  }
  EXPECT_GE(whole, 6);
}

TEST(Vectors, RdpOfDenseOrdersFindsThePublishedEpsilonOfTheGaussian) {
  std::vector<double> orders;
  for (int i = 1; i < 10000; ++i) orders.push_back(1 + i / 100.0);
  const std::vector<Json> rows = figures("RDP", "dense orders");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NEAR(rdp_epsilon(phases_of(rows[0]), rows[0]["delta"], orders).epsilon,
              rows[0]["epsilon"].get<double>(), tolerance_of(rows[0]));
}

TEST(Vectors, PldEqualsDpAccounting) {
  const std::vector<Json> rows = figures("PLD");
  ASSERT_EQ(rows.size(), 37u);
  for (const Json& row : rows) expect_epsilon("pld", row);
}

TEST(Vectors, PrvEqualsOpacusAndPrvAccountant) {
  const std::vector<Json> rows = figures("PRV");
  ASSERT_EQ(rows.size(), 59u);
  for (const Json& row : rows) {
    expect_epsilon("prv", row);
    if (!row.contains("lower")) continue;
    EXPECT_NEAR(epsilon_of("prv", phases_of(row), row["delta"]).lower, row["lower"].get<double>(),
                tolerance_of(row))
        << row.dump();
  }
}

TEST(Vectors, TheMiddleOfPrvEqualsTheEstimateOfOpacus) {
  const std::vector<Json> rows = figures("PRV_ESTIMATE");
  ASSERT_EQ(rows.size(), 18u);
  for (const Json& row : rows) {
    const Epsilon got = epsilon_of("prv", phases_of(row), row["delta"]);
    EXPECT_NEAR((got.lower + got.upper) / 2, row["epsilon"].get<double>(), tolerance_of(row))
        << row.dump();
    EXPECT_LE(got.lower, row["epsilon"].get<double>());
    EXPECT_GE(got.upper, row["epsilon"].get<double>());
  }
}

TEST(Vectors, GdpEqualsOpacusAndIsNoGuarantee) {
  const std::vector<Json> rows = figures("GDP_CLT_POISSON");
  ASSERT_EQ(rows.size(), 18u);
  for (const Json& row : rows) {
    expect_epsilon("gdp", row);
    const Epsilon got = epsilon_of("gdp", phases_of(row), row["delta"]);
    EXPECT_FALSE(got.guarantee);
    EXPECT_EQ(got.note, "approximation, not a guarantee");
  }
}

TEST(Vectors, GaussianEqualsTheClosedForm) {
  const std::vector<Json> rows = figures("GAUSSIAN_EXACT");
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    expect_epsilon("gaussian", row);
    for (const char* method : {"prv", "pld"}) {
      const Epsilon got = epsilon_of(method, phases_of(row), row["delta"]);
      EXPECT_LE(got.lower, row["epsilon"].get<double>());
      EXPECT_GE(got.upper, row["epsilon"].get<double>());
    }
  }
}

void expect_calibration(const char* method, const Json& row) {
  CalibrateOptions options;
  if (row.contains("epsilon_tolerance")) options.epsilon_tolerance = row["epsilon_tolerance"];
  const double target = row["epsilon"], q = row["q"], steps = row["steps"];
  const double sigma = calibrate_sigma(method, q, steps, row["delta"], target, options);
  EXPECT_NEAR(sigma, row["sigma"].get<double>(), tolerance_of(row, "sigma")) << row.dump();
  EXPECT_LE(epsilon_of(method, {{q, sigma, steps}}, row["delta"]).epsilon, target) << row.dump();
}

// Where a tolerance on epsilon is given, Opacus' own search is done, and its answers are met to the
// last digit.
TEST(Vectors, CalibrationsOfRdpGdpAndGaussian) {
  for (const auto& [name, method, count] : {std::tuple{"CALIBRATE_RDP", "rdp", 15u},
                                            {"CALIBRATE_GDP", "gdp", 11u},
                                            {"CALIBRATE_GAUSSIAN_EXACT", "gaussian", 1u}}) {
    const std::vector<Json> rows = figures(name);
    ASSERT_EQ(rows.size(), count);
    for (const Json& row : rows) expect_calibration(method, row);
  }
}

TEST(Vectors, CalibrationsOfPld) {
  const std::vector<Json> rows = figures("CALIBRATE_PLD");
  ASSERT_EQ(rows.size(), 6u);
  for (const Json& row : rows) expect_calibration("pld", row);
}

TEST(Vectors, CalibrationsOfPrv) {
  const std::vector<Json> rows = figures("CALIBRATE_PRV");
  ASSERT_EQ(rows.size(), 4u);
  for (const Json& row : rows) expect_calibration("prv", row);
}

TEST(Vectors, EveryFigureOfTheFileIsUsed) {
  const std::map<std::string, size_t> used{
      {"RDP", 19 + 36 + 1},  {"RDP_INT", 18},       {"PLD", 37},
      {"PRV", 59},           {"PRV_ESTIMATE", 18},  {"GDP_CLT_POISSON", 18},
      {"GAUSSIAN_EXACT", 2}, {"CALIBRATE_RDP", 15}, {"CALIBRATE_GDP", 11},
      {"CALIBRATE_PLD", 6},  {"CALIBRATE_PRV", 4},  {"CALIBRATE_GAUSSIAN_EXACT", 1}};
  size_t total = 0;
  for (const Json& row : all_figures()) {
    EXPECT_TRUE(used.contains(row["method"])) << "nothing checks " << row["method"];
  }
  for (const auto& [method, count] : used) {
    EXPECT_EQ(figures(method).size(), count) << method;
    total += count;
  }
  EXPECT_EQ(all_figures().size(), total);
  EXPECT_EQ(total, 245u);
}

}  // namespace
}  // namespace moonshard::accountant
