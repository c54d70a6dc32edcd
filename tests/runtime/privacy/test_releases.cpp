// Figures of private data that are shown to others: what is summed, how it is noised, and what the
// account makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/base/check.h"
#include "runtime/privacy/release.h"
#include "tests/support/text_of_error.h"

namespace moonshard::privacy {
namespace {

using testing::HasSubstr;

constexpr uint32_t kStreamOfReleases = 0x60000000u;

// Three classes; sample 2 is a mistake, the last two losses are out of bounds.
analysis::EvaluatedSamples classified() {
  analysis::EvaluatedSamples samples;
  samples.losses = {0.5, 1.5, 2, 100, NAN};
  samples.labels = {0, 1, 2, 2, 2};
  samples.predicted = {0, 2, 2, 2, 1};
  samples.num_labels = 3;
  return samples;
}

/// The noise of a release from seed 7 after five steps: of as many sums, at that strength.
std::vector<double> noise_of_release(int64_t sums, double std) {
  at::Tensor noise = at::zeros({sums}, at::kDouble);
  kernels::add_counter_noise(noise, std, {7, 5, kStreamOfReleases});
  return {noise.data_ptr<double>(), noise.data_ptr<double>() + sums};
}

TEST(Releases, AreSumsOverSamplesWhoseShareIsBounded) {
  const auto made = noised(classified(), {1e-12, 4}, nullptr, 7, 5);
  EXPECT_EQ(made.figures.samples, 5);
  EXPECT_NEAR(made.sensitivity, std::sqrt(2.0), 1e-15) << "a cell of the matrix and the loss";
  EXPECT_NEAR(made.figures.loss, (0.5 + 1.5 + 2 + 4 + 4) / 5, 1e-9);
  EXPECT_NEAR(made.figures.accuracy, 3.0 / 5, 1e-9);
  ASSERT_EQ(made.figures.confusion.size(), 9u);
  const double expected[9] = {1, 0, 0, 0, 0, 1, 0, 1, 2};
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(made.figures.confusion[i], expected[i], 1e-9) << i;
  ASSERT_TRUE(made.figures.accuracy_interval.has_value());
  const double half = analysis::kNormalQuantile * std::sqrt(0.6 * 0.4 / 5);
  EXPECT_NEAR(made.figures.accuracy_interval->low, 0.6 - half, 1e-9);
  EXPECT_NEAR(made.figures.accuracy_interval->high, 1, 1e-9) << "at most all of them";

  analysis::EvaluatedSamples text;
  text.losses = {1, 3, -2};
  text.tokens = {10, 20, 30};
  const auto plain = noised(text, {1e-12, 8}, nullptr, 7, 5);
  EXPECT_EQ(plain.sensitivity, 1);
  EXPECT_NEAR(plain.figures.loss, (1.0 + 3 + 0) / 3, 1e-9);
  EXPECT_TRUE(plain.figures.confusion.empty());
  EXPECT_FALSE(plain.figures.accuracy_interval.has_value());
  EXPECT_EQ(plain.accuracy_noise, 0);
}

TEST(Releases, HaveNoiseOfTheirSensitivityInEverySum) {
  const double std = 0.25 * std::sqrt(2.0);
  const auto made = noised(classified(), {0.25, 4}, nullptr, 7, 5);
  const std::vector<double> noise = noise_of_release(10, std);
  const double exact[9] = {1, 0, 0, 0, 0, 1, 0, 1, 2};
  for (size_t i = 0; i < 9; ++i)
    EXPECT_NEAR(made.figures.confusion[i], exact[i] + noise[i], 1e-12) << i;
  EXPECT_NEAR(made.figures.loss, (12.0 / 4 + noise[9]) / 5 * 4, 1e-12);
  const double p = (3 + noise[0] + noise[4] + noise[8]) / 5;
  EXPECT_NEAR(made.figures.accuracy, p, 1e-12);
  EXPECT_NEAR(made.loss_noise, std * 4 / 5, 1e-12);
  EXPECT_NEAR(made.accuracy_noise, std * std::sqrt(3.0) / 5, 1e-12);
  // Other samples, and other noise.
  const double half = analysis::kNormalQuantile *
                      std::sqrt(p * (1 - p) / 5 + made.accuracy_noise * made.accuracy_noise);
  EXPECT_NEAR(made.figures.accuracy_interval->low, std::max(0.0, p - half), 1e-12);
  EXPECT_NEAR(made.figures.accuracy_interval->high, std::min(1.0, p + half), 1e-12);

  analysis::EvaluatedSamples text;
  text.losses = {1, 3, 5};
  EXPECT_NEAR(noised(text, {0.25, 8}, nullptr, 7, 5).figures.loss,
              (9.0 / 8 + noise_of_release(1, 0.25)[0]) / 3 * 8, 1e-12);
}

TEST(Releases, StayWithinTheBoundWhateverTheNoise) {
  analysis::EvaluatedSamples text;
  text.losses = {4};
  int lowest = 0, highest = 0;
  for (int64_t count = 0; count < 40; ++count) {
    const double loss = noised(text, {100, 8}, nullptr, 7, count).figures.loss;
    EXPECT_GE(loss, 0);
    EXPECT_LE(loss, 8);
    lowest += loss == 0 ? 1 : 0;
    highest += loss == 8 ? 1 : 0;
  }
  EXPECT_GT(lowest, 8);
  EXPECT_GT(highest, 8);
}

TEST(Releases, DrawFromTheSecretWhereThereIsOne) {
  const kernels::ChaChaKey one{{1, 2, 3, 4, 5, 6, 7, 8}}, other{{8, 2, 3, 4, 5, 6, 7, 1}};
  const auto loss = [](const kernels::ChaChaKey* secret, uint64_t seed, int64_t count) {
    return noised(classified(), {0.1, 4}, secret, seed, count).figures.loss;
  };
  EXPECT_EQ(loss(&one, 7, 5), loss(&one, 8, 5)) << "the seed says nothing of it";
  EXPECT_NE(loss(&one, 7, 5), loss(&other, 7, 5));
  EXPECT_NE(loss(&one, 7, 5), loss(&one, 7, 6));
  EXPECT_NE(loss(&one, 7, 5), loss(nullptr, 7, 5));
  EXPECT_NE(loss(nullptr, 7, 5), loss(nullptr, 8, 5));
  EXPECT_NE(loss(nullptr, 7, 5), loss(nullptr, 7, 6));
}

TEST(Releases, RefuseWhatHasNoBoundAndWhatWouldDrown) {
  for (const double bound : {0.0, -1.0, double(INFINITY), double(NAN)})
    EXPECT_THAT(text_of_error([&] {
                  noised(classified(), {1, bound}, nullptr, 7, 5);
                }),
                HasSubstr("option 'loss_bound': expected a number above 0"));
  analysis::EvaluatedSamples samples = classified();
  samples.num_labels = 100;
  EXPECT_EQ(text_of_error([&] { noised(samples, {1, 1}, nullptr, 7, 5); }), "");
  samples.num_labels = 101;
  EXPECT_THAT(text_of_error([&] {
                noised(samples, {1, 1}, nullptr, 7, 5);
              }),
              HasSubstr("expected at most 100 classes for a noised evaluation, got 101"));
}

// ---- what an account makes of them --------------------------------------------------------------

data::Sampling drawn(double rate = 0.125, int64_t examples = 64) {
  return {"poisson", rate, examples, static_cast<int64_t>(rate * static_cast<double>(examples)),
          ""};
}

Account account_of(const PrivacyOptions& options, const data::Sampling& sampling = drawn()) {
  return Account(options, sampling, "", std::make_shared<models::LastTrainer>(), 1);
}

PrivacyOptions budget_of_three_steps() {
  PrivacyOptions options;
  options.target_epsilon = 4;
  options.budget_steps = 3;
  options.accountant = "rdp";
  return options;
}

ClipOptions clipped(double noise) {
  ClipOptions clip;
  clip.mode = "bookkeeping";
  clip.noise_multiplier = noise;
  return clip;
}

void release(Account& account, double noise) {
  account.check_release(noise);
  accountant::History charge;
  charge.add({1, noise, 1});
  account.charge(charge);
}

TEST(ReleaseBudget, WithoutATargetIsOnlyCounted) {
  Account account = account_of({});
  account.with_noise(clipped(1));
  for (const double bad : {0.0, -1.0, double(INFINITY), double(NAN)})
    EXPECT_THAT(text_of_error([&] { account.check_release(bad); }),
                HasSubstr("option 'noise_multiplier': expected a number above 0"));
  account.count_step(1);
  release(account, 0.5);
  account.count_step(1);
  release(account, 0.5);
  ASSERT_EQ(account.history().phases().size(), 2u) << "by kinds";
  EXPECT_EQ(account.history().phases()[0].steps, 2);
  EXPECT_EQ(account.history().phases()[1].q, 1);
  EXPECT_EQ(account.history().phases()[1].steps, 2);
  EXPECT_EQ(account.private_steps(), 4);
  EXPECT_EQ(account.spent().noised_steps, 4);
  EXPECT_EQ(account.spent().secret_steps, 4);
  EXPECT_EQ(account.record().noise, "secure");
  PrivacyOptions seeded;
  seeded.secure = false;
  Account reproducible = account_of(seeded);
  release(reproducible, 0.5);
  EXPECT_EQ(reproducible.spent().secret_steps, 0);
}

// Three steps and a release are planned: they fit whatever their order, and nothing more does.
TEST(ReleaseBudget, WhatIsPlannedFitsAndNothingMore) {
  PrivacyOptions options = budget_of_three_steps();
  Account plain = account_of(options);
  const double noise_alone = plain.with_noise(clipped(1)).noise_multiplier;
  options.releases = 1;
  options.release_noise = 3;
  for (const bool steps_first : {true, false}) {
    Account account = account_of(options);
    const double noise = account.with_noise(clipped(1)).noise_multiplier;
    EXPECT_GT(noise, noise_alone) << "releases are paid for by the steps";
    EXPECT_THAT(text_of_error([&] { account.check_release(0.5); }), HasSubstr("leads to"))
        << "the plan is for a release with more noise";
    for (const bool is_step : {steps_first, !steps_first}) {
      for (int i = 0; i < (is_step ? 3 : 1); ++i) {
        if (is_step) {
          account.check_left();
          account.count_step(noise);
        } else {
          release(account, 3);
        }
        EXPECT_LE(account.epsilon_so_far(), 4);
      }
    }
    EXPECT_GT(account.epsilon().epsilon, 3.99);
    EXPECT_LE(account.epsilon().epsilon, 4);
    EXPECT_THAT(text_of_error([&] { account.check_release(3); }),
                HasSubstr("expected a release within the budget of epsilon 4 at delta 1e-05"));
    EXPECT_THAT(text_of_error([&] { account.check_left(); }),
                HasSubstr("within the budget of epsilon 4 at delta 1e-05 (planned: 3), got one "
                          "more after 3 steps"));
    account.charge([] {
      accountant::History more;
      more.add({1, 0.5, 1});
      return more;
    }());
    EXPECT_GT(account.epsilon_so_far(), 4) << "what was not planned is not hidden by the target";
  }
}

// A release that was not planned must leave room for the steps that were.
TEST(ReleaseBudget, LeavesRoomForTheStepsThatArePlanned) {
  PrivacyOptions options = budget_of_three_steps();
  Account account = account_of(options);
  const double noise = account.with_noise(clipped(1)).noise_multiplier;
  EXPECT_THAT(text_of_error([&] { account.check_release(1); }),
              HasSubstr("with the 3 steps that are planned; plan for it"));
  EXPECT_THAT(text_of_error([&] { account.check_release(30); }), HasSubstr("leads to"));
  EXPECT_EQ(text_of_error([&] { account.check_release(1e5); }), "") << "hardly any";
  account.count_step(noise);
  account.invalidate_claim("a test says so");
  EXPECT_EQ(text_of_error([&] { account.check_release(1); }), "") << "there is nothing to keep";
  // Where steps see all samples a release is one of them.
  Account whole = account_of(options, drawn(1));
  const double more_noise = whole.with_noise(clipped(1)).noise_multiplier;
  release(whole, 1e5);
  whole.count_step(more_noise);
  whole.count_step(more_noise);
  EXPECT_THAT(text_of_error([&] { whole.check_left(); }), HasSubstr("got one more after 3 steps"));
}

TEST(ReleaseBudget, ReleasesAndTheirNoiseComeTogether) {
  PrivacyOptions options;
  options.releases = 1;
  EXPECT_THAT(text_of_error([&] { account_of(options); }),
              HasSubstr("expected releases and release_noise, both or neither, got 1 and 0"));
  options.releases = 0;
  options.release_noise = 2;
  EXPECT_THAT(text_of_error([&] { account_of(options); }), HasSubstr("both or neither"));
  options.release_noise = 0;
  for (const double delta : {0.0, 1.0, -1.0}) {
    options.delta = delta;
    EXPECT_THAT(text_of_error([&] { account_of(options); }),
                HasSubstr("option 'delta': expected more than 0 and less than 1"));
  }
}

TEST(ReleaseBudget, ATargetNeedsAPlanAndAClaim) {
  PrivacyOptions options;
  options.target_epsilon = 2;
  EXPECT_THAT(text_of_error([&] { account_of(options).with_noise(clipped(1)); }),
              HasSubstr("expected epochs or budget_steps beside it"));
  options.budget_steps = 5;
  options.secure = false;
  EXPECT_THAT(text_of_error([&] { account_of(options).with_noise(clipped(1)); }),
              HasSubstr("expected a run that can claim one, got reproducible noise"));
  ClipOptions plain = clipped(0.7);
  plain.mode = "none";
  EXPECT_EQ(account_of(options).with_noise(plain).noise_multiplier, 0.7);
  Account silent = account_of({});
  silent.with_noise(clipped(0));
  EXPECT_EQ(silent.why_no_epsilon(), "noise_multiplier = 0: nothing is hidden");
}

TEST(ReleaseBudget, EpochsAreRoundedUpToSteps) {
  EXPECT_EQ(steps_of_epochs(2, drawn()), 16);
  EXPECT_EQ(steps_of_epochs(2.01, drawn()), 17);
  EXPECT_EQ(steps_of_epochs(0.001, drawn()), 1);
  EXPECT_EQ(steps_of_epochs(3, drawn(0.1)), 30) << "0.1 is no binary number";
  data::Sampling fixed = drawn();
  fixed.sampler = "fixed";
  EXPECT_THAT(text_of_error([&] { steps_of_epochs(2, fixed); }),
              HasSubstr("expected data with sampler = poisson"));
}

// A cheap bound for progress: a few orders near the last best one are looked at, also where the
// best moves on or what was spent jumps.
TEST(ReleaseBudget, ProgressIsTheBoundOfAllOrders) {
  Account account = account_of({});
  account.with_noise(clipped(1));
  const auto full = [&] { return account.history().epsilon("rdp", 1e-5).epsilon; };
  for (int step = 0; step < 300; ++step) {
    account.count_step(1);
    ASSERT_NEAR(account.epsilon_so_far(), full(), 1e-9) << step;
  }
  accountant::History large;
  large.add({1, 0.2, 50});
  account.charge(large);
  EXPECT_NEAR(account.epsilon_so_far(), full(), 1e-9);
  Account fresh = account_of({});
  fresh.count_step(1);
  account.go_on_from(fresh.spent());
  EXPECT_NEAR(account.epsilon_so_far(), full(), 1e-9);
}

}  // namespace
}  // namespace moonshard::privacy
