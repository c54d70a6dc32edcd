// A claim of privacy is compared with what its own numbers give.
#include "viewer/panels/privacy_verdict.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/rdp.h"

namespace moonshard::viewer {
namespace {

PrivacyPart good_claim() {
  PrivacyPart claim;
  claim.private_engine = true;
  claim.delta = 1e-5;
  claim.sampling_rate = 0.01;
  claim.noise_multiplier = 1.1;
  claim.steps = 1000;
  claim.sampler = "poisson";
  claim.accountant = "rdp";
  claim.epsilon = accountant::rdp_epsilon({{0.01, 1.1, 1000}}, 1e-5).epsilon;
  return claim;
}

using Verdict = PrivacyVerdict::Kind;

TEST(PrivacyVerdict, AgreesOnlyWithWhatItComputesItself) {
  PrivacyPart claim = good_claim();
  const double true_epsilon = claim.epsilon;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Agrees);
  EXPECT_EQ(check_claim(claim, 0).epsilon, true_epsilon);
  claim.epsilon = true_epsilon * 1.5;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Agrees) << "claiming more than needed is safe";
  claim.epsilon = true_epsilon * 0.9;
  const PrivacyVerdict low = check_claim(claim, 0);
  EXPECT_EQ(low.kind, Verdict::TooLow);
  EXPECT_NE(low.text.find("CLAIM TOO LOW"), std::string::npos);
  EXPECT_NE(low.text.find("(10 %)"), std::string::npos) << low.text;
  claim.accountant = "moments";
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unconfirmed)
      << "an accountant that we do not have";
}

TEST(PrivacyVerdict, RecomputesByTheMethodThatTheClaimNames) {
  PrivacyPart claim = good_claim();
  for (const char* method : {"prv", "pld"}) {
    claim.accountant = method;
    const accountant::Epsilon found = accountant::epsilon_of(method, {{0.01, 1.1, 1000}}, 1e-5);
    claim.epsilon = found.epsilon;
    const PrivacyVerdict same = check_claim(claim, 0);
    EXPECT_EQ(same.kind, Verdict::Agrees) << method;
    EXPECT_EQ(same.epsilon, found.epsilon) << method;
    EXPECT_EQ(same.method, method);
    claim.epsilon = (found.lower + found.upper) / 2;
    EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unconfirmed) << "inside of the bracket";
    claim.epsilon = found.lower * 0.95;
    EXPECT_EQ(check_claim(claim, 0).kind, Verdict::TooLow) << "below the bracket";
  }
  claim.accountant = "gaussian";
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unknown) << "q is not 1";
  claim.sampling_rate = 1;
  claim.noise_multiplier = 50;
  claim.epsilon = accountant::epsilon_of("gaussian", {{1, 50, 1000}}, 1e-5).epsilon;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Agrees);
  claim.epsilon *= 0.9;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::TooLow);
}

TEST(PrivacyVerdict, TakesAnApproximationForNoGuarantee) {
  PrivacyPart claim = good_claim();
  claim.accountant = "gdp";
  claim.epsilon = accountant::epsilon_of("gdp", {{0.01, 1.1, 1000}}, 1e-5).epsilon;
  const PrivacyVerdict verdict = check_claim(claim, 0);
  EXPECT_EQ(verdict.kind, Verdict::Unconfirmed);
  EXPECT_NE(verdict.text.find("approximation, not a guarantee"), std::string::npos);
  EXPECT_GT(verdict.epsilon, claim.epsilon);
  claim.epsilon = 3;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Agrees);
}

TEST(PrivacyVerdict, AddsUpAHistoryOfPhases) {
  PrivacyPart claim = good_claim();
  claim.history = {{0.01, 1.1, 400}, {0.02, 1.3, 600}};
  claim.epsilon = accountant::epsilon_of("rdp", {{0.01, 1.1, 400}, {0.02, 1.3, 600}}, 1e-5).epsilon;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Agrees);
  EXPECT_EQ(check_claim(claim, 0).epsilon, claim.epsilon);
  EXPECT_EQ(check_claim(claim, 9000).kind, Verdict::TooLow) << "8000 steps are not counted";
  claim.steps = 9000;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::TooLow) << "by its own word";
  claim.history[1].q = 7;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unknown);
  claim.history.assign(100'000, {0.5, 1, 1});
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unknown) << "and at once";
}

TEST(PrivacyVerdict, CountsStepsThatTheClaimLeavesOut) {
  const PrivacyVerdict verdict = check_claim(good_claim(), 4000);
  EXPECT_EQ(verdict.kind, Verdict::TooLow);
  EXPECT_EQ(verdict.steps, 4000);
  EXPECT_NE(verdict.text.find("the claim counts 1000"), std::string::npos) << verdict.text;
}

TEST(PrivacyVerdict, RefusesClaimsThatNothingStandsBehind) {
  PrivacyPart claim = good_claim();
  claim.private_engine = false;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unfounded);
  claim = good_claim();
  claim.sampler = "fixed";
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::Unknown);
  claim = good_claim();
  claim.noise_multiplier = 0;
  EXPECT_EQ(check_claim(claim, 0).kind, Verdict::TooLow) << "no noise, no epsilon";
  claim = PrivacyPart();
  claim.noise = "none";
  claim.why_no_epsilon = "fixed batches";
  EXPECT_EQ(check_claim(claim, 0).text, "Not private: no epsilon is claimed: fixed batches.");
}

TEST(PrivacyVerdict, SurvivesAnyNumbers) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {-1.0, 0.0, 1.0, 2.0, 1e308, -1e308, 1e-308, kInfinity, -kInfinity,
                              std::numeric_limits<double>::quiet_NaN()}) {
    for (double PrivacyPart::*field :
         {&PrivacyPart::epsilon, &PrivacyPart::delta, &PrivacyPart::sampling_rate,
          &PrivacyPart::noise_multiplier, &PrivacyPart::steps}) {
      PrivacyPart claim = good_claim();
      claim.*field = number;
      const PrivacyVerdict verdict = check_claim(claim, 0);
      EXPECT_FALSE(verdict.text.empty());
      if (std::isnan(claim.epsilon)) continue;
      EXPECT_FALSE(verdict.kind == Verdict::Agrees && !(verdict.epsilon >= 0));
    }
  }
}

}  // namespace
}  // namespace moonshard::viewer
