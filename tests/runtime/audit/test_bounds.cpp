// Bounds against reference values, against the power table, and against their own promise: at the
// stated confidence they are below the truth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/accountant/gaussian.h"
#include "runtime/audit/bounds.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"

namespace moonshard::audit {
namespace {

Json vectors() {
  return read_json_file(MOONSHARD_SOURCE_DIR "/tests/data/audit.json");
}

Scores gaussian_scores(std::mt19937_64& generator, int64_t each, double size, double sigma) {
  std::normal_distribution<double> noise(0, sigma);
  Scores scores;
  for (int64_t i = 0; i < each; ++i) {
    scores.in.push_back(size + noise(generator));
    scores.out.push_back(noise(generator));
  }
  return scores;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

TEST(OneRunBound, EqualsTheReferenceValues) {
  const Json file = vectors();
  ASSERT_EQ(file["one_run"].size(), 10u);
  for (const Json& row : file["one_run"]) {
    SCOPED_TRACE(row.dump());
    const auto canaries = row["m"].get<int64_t>(), guesses = row["guesses"].get<int64_t>();
    const auto correct = row["correct"].get<int64_t>();
    const double delta = row["delta"];
    EXPECT_NEAR(one_run_epsilon(canaries, guesses, correct, row["significance"], delta),
                row["epsilon_lower"].get<double>(), row["tol_abs"].get<double>());
    // The p-value itself is a sum of binomial terms: only rounding may differ.
    const double p_value = row["p_value_at_eps1"];
    EXPECT_NEAR(one_run_p_value(canaries, guesses, correct, 1, delta), p_value, 1e-9 * p_value);
  }
}

TEST(OneRunBound, GrowsWithRightGuessesAndFallsWithSignificance) {
  double before = -1;
  for (int64_t correct = 500; correct <= 1000; correct += 50) {
    const double bound = one_run_epsilon(1000, 1000, correct, 0.05, 1e-5);
    EXPECT_GE(bound, before);
    EXPECT_LE(one_run_epsilon(1000, 1000, correct, 0.01, 1e-5), bound);
    EXPECT_LE(one_run_epsilon(1000, 1000, correct, 0.05, 1e-3), bound);
    before = bound;
  }
  EXPECT_GT(before, 5);
}

// Randomised response is the mechanism that the bound is tight for: each guess is right with chance
// e^epsilon / (1 + e^epsilon).
TEST(OneRunBound, IsAboveTheTruthNoMoreOftenThanItsSignificance) {
  constexpr double kEpsilon = 1.5, kSignificance = 0.05;
  constexpr int kRuns = 500;
  std::mt19937_64 generator(5);
  std::binomial_distribution<int64_t> right(400, 1 / (1 + std::exp(-kEpsilon)));
  int above = 0, close = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double bound = one_run_epsilon(400, 400, right(generator), kSignificance, 0);
    above += bound > kEpsilon;
    close += bound > 0.7 * kEpsilon;
  }
  EXPECT_LE(above, kRuns * kSignificance + 3 * std::sqrt(kRuns * kSignificance));
  EXPECT_GE(above, 1) << "a bound that is never above the truth is not tight";
  EXPECT_GT(close, kRuns / 2);
}

TEST(BinomialLimit, CoversTheTruthForEveryShare) {
  constexpr double kSignificance = 0.05;
  double most_missed = 0;
  for (const int64_t trials : {1, 7, 40}) {
    std::vector<double> limits;
    for (int64_t k = 0; k <= trials; ++k)
      limits.push_back(binomial_upper_limit(k, trials, kSignificance));
    EXPECT_TRUE(std::is_sorted(limits.begin(), limits.end()));
    EXPECT_EQ(limits.back(), 1);
    for (double share = 0.01; share < 1; share += 0.01) {
      double missed = 0;  // chance of a count whose limit is below the share
      for (int64_t k = 0; k <= trials; ++k) {
        const double log_term = std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) -
                                std::lgamma(trials - k + 1.0) + k * std::log(share) +
                                static_cast<double>(trials - k) * std::log1p(-share);
        if (limits[static_cast<size_t>(k)] < share) missed += std::exp(log_term);
      }
      EXPECT_LE(missed, kSignificance * (1 + 1e-9)) << trials << " trials, share " << share;
      most_missed = std::max(most_missed, missed);
    }
  }
  EXPECT_GT(most_missed, 0.8 * kSignificance) << "the limits are needlessly wide";
  // None of n: the share p with (1 - p)^n = significance.
  EXPECT_NEAR(binomial_upper_limit(0, 100, 0.05), 1 - std::pow(0.05, 0.01), 1e-12);
}

// Rows say how a canary's score is wrong: by less noise, or by a larger canary.
double score_ratio(const std::string& name) {
  if (name == "correct") return 1;
  return name.find("sqrt2") != std::string::npos || name.find("W=2") != std::string::npos
             ? std::sqrt(2.0)
             : 2;
}

TEST(GaussianAndClopperPearson, HaveThePowerOfTheReferenceTable) {
  constexpr int kSeeds = 40;
  std::mt19937_64 generator(7);
  const Json file = vectors();
  ASSERT_EQ(file["power"].size(), 15u);
  EXPECT_NEAR(accountant::gaussian_epsilon(1, 1e-5), 4.377, 5e-4);
  for (const Json& row : file["power"]) {
    SCOPED_TRACE(row.dump());
    const std::string name = row["case"];
    const bool larger = name.find("shard") != std::string::npos;
    const auto each = row["canaries_each"].get<int64_t>();
    std::vector<double> gaussian, clopper;
    int flagged = 0;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const double ratio = score_ratio(name);
      const Scores scores =
          gaussian_scores(generator, each, larger ? ratio : 1, larger ? 1 : 1 / ratio);
      gaussian.push_back(gaussian_dp_bound(scores, 0.05, 1e-5));
      clopper.push_back(clopper_pearson_bound(scores, 0.05, 1e-5));
      flagged += gaussian.back() > row["claimed_epsilon"].get<double>();
    }
    // Medians of 40 seeds vary by some 2 % themselves, at the thresholds of either side's choice.
    EXPECT_NEAR(median(gaussian) / row["median_lb_gdp"].get<double>(), 1, 0.06);
    EXPECT_NEAR(median(clopper) / row["median_lb_clopper"].get<double>(), 1, 0.12);
    EXPECT_NEAR(flagged / double{kSeeds}, row["flagged_gdp"].get<double>(), 0.13);
    if (name == "correct") {
      EXPECT_EQ(flagged, 0);
    }
  }
}

TEST(GaussianAndClopperPearson, AreAboveTheTruthNoMoreOftenThanTheirSignificance) {
  constexpr int kRuns = 600;
  std::mt19937_64 generator(11);
  for (const double mu : {0.0, 0.5, 2.0}) {
    const double truth = mu > 0 ? accountant::gaussian_epsilon(mu, 1e-5) : 0;
    int gaussian = 0, clopper = 0, one_run = 0;
    for (int run = 0; run < kRuns; ++run) {
      const Scores scores = gaussian_scores(generator, 60, mu, 1);
      gaussian += gaussian_dp_bound(scores, 0.05, 1e-5) > truth;
      clopper += clopper_pearson_bound(scores, 0.05, 1e-5) > truth;
      one_run += one_run_bound(scores, 0.05, 1e-5) > truth;
    }
    for (const int above : {gaussian, clopper, one_run}) EXPECT_LE(above, kRuns * 0.05) << mu;
  }
}

TEST(Bounds, SayNothingWithoutEvidence) {
  const Scores none;
  EXPECT_EQ(one_run_bound(none, 0.05, 1e-5), 0);
  EXPECT_EQ(gaussian_dp_bound(none, 0.05, 1e-5), 0);
  EXPECT_EQ(clopper_pearson_bound(none, 0.05, 1e-5), 0);
  // Equal scores and scores that are no numbers tell nobody apart.
  for (const double score : {0.5, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const Scores same{std::vector<double>(500, score), std::vector<double>(500, score)};
    EXPECT_EQ(one_run_bound(same, 0.05, 1e-5), 0) << score;
    EXPECT_EQ(gaussian_dp_bound(same, 0.05, 1e-5), 0) << score;
    EXPECT_EQ(clopper_pearson_bound(same, 0.05, 1e-5), 0) << score;
  }
}

TEST(Bounds, RefuseNumbersThatMakeNoSense) {
  EXPECT_THROW(one_run_epsilon(10, 20, 5, 0.05, 1e-5), UsageError);
  EXPECT_THROW(one_run_epsilon(20, 10, 11, 0.05, 1e-5), UsageError);
  EXPECT_THROW(one_run_epsilon(20, 10, 5, 0, 1e-5), UsageError);
  EXPECT_THROW(gaussian_dp_bound({}, 1, 1e-5), UsageError);
  EXPECT_THROW(clopper_pearson_bound({}, 0.05, 1), UsageError);
  EXPECT_THROW(binomial_upper_limit(3, 2, 0.05), UsageError);
}

}  // namespace
}  // namespace moonshard::audit
