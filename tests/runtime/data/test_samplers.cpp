// Which examples a step takes, and how they reach the ranks (goals of G6).
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <atomic>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "runtime/base/check.h"
#include "runtime/data/dataset_source.h"
#include "runtime/data/sampler.h"

namespace moonshard::data {
namespace {

// Example n is the row (n, n).
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size, bool fails = false) : fails_(fails), size_(size) {}
  std::atomic<bool> fails_;
  int64_t size() const override { return size_; }
  Batch batch(const std::vector<int64_t>& examples) const override {
    MS_CHECK(!fails_.load(), "numbers: expected to be read, got a broken disk");
    Batch batch;
    batch.inputs = at::tensor(examples, at::kLong).to(at::kDouble).unsqueeze(1).expand({-1, 2});
    batch.inputs = batch.inputs.contiguous();
    return batch;
  }
  Json facts() const override { return {{"what", "numbers"}}; }

 private:
  int64_t size_;
};

std::vector<int64_t> numbers_of(const std::vector<Batch>& batches) {
  std::vector<int64_t> all;
  for (const Batch& batch : batches)
    for (int64_t i = 0; i < batch.size(); ++i) all.push_back(batch.inputs[i][0].item<int64_t>());
  return all;
}

// Upper end of a chi-square of many degrees at p = 1e-4 (Wilson and Hilferty).
double chi_square_limit(double degrees) {
  const double t = 2.0 / (9 * degrees);
  return degrees * std::pow(1 - t + 3.72 * std::sqrt(t), 3);
}

class PoissonBySource : public testing::TestWithParam<bool> {
 protected:
  RandomWords words() const {
    return GetParam() ? RandomWords(draw_secret_key()) : RandomWords(uint64_t{20});
  }
};

TEST_P(PoissonBySource, BatchSizesAreBinomial) {
  const int64_t examples = 50, steps = 100'000;
  const auto sampler = make_sampler({"poisson", examples, 5}, words());
  std::vector<double> counts(static_cast<size_t>(examples) + 1, 0);
  for (int64_t step = 0; step < steps; ++step) ++counts[sampler->examples_of(step).size()];
  EXPECT_GT(counts[0], 0) << "empty batches come: 0.9^50 = 0.5 %";
  double chi = 0, degrees = -1, rest_seen = 0, rest_expected = 0;
  for (int64_t k = 0; k <= examples; ++k) {
    const double log_p = std::lgamma(examples + 1.0) - std::lgamma(k + 1.0) -
                         std::lgamma(examples - k + 1.0) + static_cast<double>(k) * std::log(0.1) +
                         static_cast<double>(examples - k) * std::log(0.9);
    const double expected = std::exp(log_p) * static_cast<double>(steps);
    const double seen = counts[static_cast<size_t>(k)];
    if (expected < 10) {
      rest_seen += seen, rest_expected += expected;
      continue;
    }
    chi += (seen - expected) * (seen - expected) / expected;
    ++degrees;
  }
  chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
  EXPECT_LT(chi, chi_square_limit(degrees + 1));
}

TEST_P(PoissonBySource, PairsAreIncludedIndependently) {
  const int64_t examples = 20, steps = 100'000;
  const auto sampler = make_sampler({"poisson", examples, 6}, words());  // each with 0.3
  at::Tensor seen = at::zeros({examples, examples}, at::kDouble);
  double* pairs = seen.data_ptr<double>();
  for (int64_t step = 0; step < steps; ++step) {
    const std::vector<int64_t> chosen = sampler->examples_of(step);
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
    for (const int64_t a : chosen)
      for (const int64_t b : chosen) ++pairs[a * examples + b];
  }
  double singles = 0, both = 0;
  for (int64_t a = 0; a < examples; ++a) {
    for (int64_t b = a; b < examples; ++b) {
      const double p = a == b ? 0.3 : 0.09, n = static_cast<double>(steps);
      const double z = (pairs[a * examples + b] - n * p) / std::sqrt(n * p * (1 - p));
      (a == b ? singles : both) += z * z;
    }
  }
  EXPECT_LT(singles, chi_square_limit(20));
  // The 190 pairs share examples: their sum has a wider spread than a chi-square's.
  EXPECT_LT(both, 190 + 6 * std::sqrt(2 * 190.0 * 4));
}

TEST_P(PoissonBySource, StepsAreIndependentOfEachOther) {
  const int64_t examples = 40, steps = 50'000;
  const auto sampler = make_sampler({"poisson", examples, 20}, words());
  double together = 0;
  std::vector<int64_t> before = sampler->examples_of(0);
  for (int64_t step = 1; step < steps; ++step) {
    const std::vector<int64_t> now = sampler->examples_of(step);
    std::vector<int64_t> shared;
    std::set_intersection(before.begin(), before.end(), now.begin(), now.end(),
                          std::back_inserter(shared));
    together += static_cast<double>(shared.size());
    before = now;
  }
  const double n = static_cast<double>(examples * (steps - 1));
  EXPECT_NEAR(together / n, 0.25, 5 * std::sqrt(0.25 * 0.75 / n) * 1.5);
}

INSTANTIATE_TEST_SUITE_P(Words, PoissonBySource, testing::Values(false, true),
                         [](const auto& which) { return which.param ? "Secret" : "Seed"; });

TEST(Samplers, SayWhetherTheirRunsMayClaimAnEpsilon) {
  const RandomWords words(draw_secret_key());
  EXPECT_EQ(make_sampler({"poisson", 100, 10}, words)->sampling().why_no_epsilon, "");
  EXPECT_DOUBLE_EQ(make_sampler({"poisson", 100, 10}, words)->sampling().rate, 0.1);
  for (const char* name : {"fixed", "shuffled"})
    EXPECT_NE(make_sampler({name, 100, 10}, words)->sampling().why_no_epsilon, "") << name;
  EXPECT_THROW(make_sampler({"poisson", 100, 101}, words), UsageError);
  EXPECT_THROW(make_sampler({"random", 100, 10}, words), UsageError);
  EXPECT_THROW(make_sampler({"fixed", 0, 10}, words), UsageError);
  EXPECT_EQ(make_sampler({"poisson", 7, 7}, words)->examples_of(3).size(), 7u);
}

TEST(Samplers, AShuffledEpochHasEveryExampleOnce) {
  const auto sampler = make_sampler({"shuffled", 10, 4}, RandomWords(uint64_t{3}));
  std::vector<int64_t> all;
  for (int64_t step = 0; step < 5; ++step)
    for (const int64_t one : sampler->examples_of(step)) all.push_back(one);
  const std::vector<int64_t> first(all.begin(), all.begin() + 10),
      second(all.begin() + 10, all.end());
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 10u);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 10u);
  EXPECT_NE(first, second);
}

TEST(DatasetSource, RanksTogetherTakeWhatOneProcessTakesInPartsThatFit) {
  const auto dataset = std::make_shared<Numbers>(200);
  const RandomWords words(uint64_t{9});
  LoaderOptions alone{"poisson", 64, 1, 24, 0};
  DatasetSource one(dataset, alone, words, c10::kCPU);
  std::vector<std::unique_ptr<DatasetSource>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(std::make_unique<DatasetSource>(dataset, LoaderOptions{"poisson", 4, 1, 24, 2},
                                                    words, c10::kCPU, rank, 3));
  for (int step = 0; step < 50; ++step) {
    std::vector<int64_t> want = numbers_of(one.next_step(1)), got;
    std::set<size_t> parts;
    for (auto& rank : ranks) {
      const std::vector<Batch> batches = rank->next_step(1);
      parts.insert(batches.size());
      for (const Batch& batch : batches) EXPECT_LE(batch.size(), 4);
      for (const int64_t number : numbers_of(batches)) got.push_back(number);
    }
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, want);
    EXPECT_EQ(parts.size(), 1u) << "every rank has as many micro-batches";
  }
  EXPECT_EQ(one.sampling().expected_batch_size, 24);
}

// No sample is dropped: the same ones in micro-batches of one size.
TEST(DatasetSource, FillsMicroBatchesUpToOneSize) {
  const auto dataset = std::make_shared<Numbers>(200);
  const RandomWords words(uint64_t{9});
  for (const int world : {1, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      LoaderOptions options{"poisson", 4, 1, 13, 0};
      DatasetSource plain(dataset, options, words, c10::kCPU, rank, world);
      options.pad_batches = true;
      DatasetSource filled(dataset, options, words, c10::kCPU, rank, world);
      int64_t rows_of_padding = 0, batches_of_padding = 0;
      for (int step = 0; step < 60; ++step) {
        const std::vector<Batch> want = plain.next_step(1), got = filled.next_step(1);
        ASSERT_EQ(want.size(), got.size());
        std::vector<Batch> samples;
        for (size_t i = 0; i < got.size(); ++i) {
          const Batch& batch = got[i];
          EXPECT_EQ(batch.size(), 4);
          EXPECT_TRUE(batch.padding == 0 || i + 2 >= got.size()) << "all but the last are full";
          EXPECT_EQ(batch.counted.sum().item<int64_t>(), batch.samples());
          EXPECT_EQ(batch.counted.slice(0, 0, batch.samples()).sum().item<int64_t>(),
                    batch.samples());
          EXPECT_EQ(batch.inputs.slice(0, batch.samples()).abs().sum().item<double>(), 0);
          EXPECT_EQ(batch.slice(1, 3).padding, std::min<int64_t>(3, batch.padding));
          rows_of_padding += batch.padding;
          batches_of_padding += batch.samples() == 0;
          samples.push_back(batch.slice(0, batch.samples()));
        }
        EXPECT_EQ(numbers_of(samples), numbers_of(want));
      }
      EXPECT_GT(rows_of_padding, 0);
      EXPECT_TRUE(batches_of_padding > 0 || rank < 2) << "where other ranks have one sample more";
    }
  }
}

TEST(DatasetSource, AnEmptyDrawIsAnEmptyBatch) {
  DatasetSource source(std::make_shared<Numbers>(100), {"poisson", 4, 1, 1, 0},
                       RandomWords(uint64_t{2}), c10::kCPU);
  int empty = 0;
  for (int step = 0; step < 60; ++step) {
    const std::vector<Batch> batches = source.next_step(1);
    ASSERT_GE(batches.size(), 1u);
    if (batches.size() == 1 && batches[0].size() == 0) ++empty;
  }
  EXPECT_GT(empty, 5);
}

TEST(DatasetSource, GoesOnWhereAnotherNumberOfRanksStopped) {
  const auto dataset = std::make_shared<Numbers>(100);
  for (const char* sampler : {"fixed", "shuffled"}) {
    const RandomWords words(uint64_t{4});
    DatasetSource whole(dataset, {sampler, 3, 1, 0, 2}, words, c10::kCPU);
    std::vector<int64_t> want;
    for (int i = 0; i < 8; ++i)
      for (const int64_t n : numbers_of(whole.next_step(1))) want.push_back(n);
    std::vector<int64_t> got;
    DatasetSource a(dataset, {sampler, 3, 1, 0, 2}, words, c10::kCPU, 0, 2),
        b(dataset, {sampler, 3, 1, 0, 2}, words, c10::kCPU, 1, 2);
    for (int i = 0; i < 2; ++i)
      for (DatasetSource* rank : {&a, &b})
        for (const int64_t n : numbers_of(rank->next_step(1))) got.push_back(n);
    DatasetSource later(dataset, {sampler, 3, 2, 0, 1}, words, c10::kCPU);
    later.go_to(a.position());
    for (int i = 0; i < 2; ++i)
      for (const int64_t n : numbers_of(later.next_step(2))) got.push_back(n);
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    EXPECT_EQ(got, want) << sampler;
  }
}

TEST(DatasetSource, WhatAThreadMeetsIsThrownWhereTheBatchIsAskedFor) {
  for (const int64_t prefetch : {0, 3}) {
    DatasetSource source(std::make_shared<Numbers>(10, /*fails=*/true),
                         {"fixed", 2, 1, 0, prefetch}, RandomWords(uint64_t{1}), c10::kCPU);
    EXPECT_THROW(source.next_step(1), UsageError);
  }
}

// A draw that could not be read is neither lost nor used twice.
TEST(DatasetSource, GoesOnWithTheSameDrawWhenItCanBeReadAgain) {
  for (const int64_t prefetch : {0, 1, 3}) {
    const auto dataset = std::make_shared<Numbers>(64);
    const RandomWords words(uint64_t{6});
    DatasetSource plain(std::make_shared<Numbers>(64), {"poisson", 8, 1, 8, 0}, words, c10::kCPU),
        broken(dataset, {"poisson", 8, 1, 8, prefetch}, words, c10::kCPU);
    for (int step = 0; step < 12; ++step) {
      if (step % 4 == 2) {
        broken.go_to(broken.position());  // forget what was read while the disk was whole
        dataset->fails_ = true;
        EXPECT_THROW(broken.next_step(1), UsageError);
        dataset->fails_ = false;
      }
      EXPECT_EQ(numbers_of(broken.next_step(1)), numbers_of(plain.next_step(1))) << step;
    }
  }
}

TEST(DatasetSource, PlainTrainingPassesOverEmptyDraws) {
  LoaderOptions options{"poisson", 4, 1, 1, 2};
  options.skip_empty = true;
  DatasetSource source(std::make_shared<Numbers>(100), options, RandomWords(uint64_t{2}),
                       c10::kCPU);
  for (int step = 0; step < 40; ++step) EXPECT_GT(numbers_of(source.next_step(1)).size(), 0u);
  EXPECT_GT(source.position(), 45);
}

TEST(DatasetSource, FetchingAheadChangesNothing) {
  const auto dataset = std::make_shared<Numbers>(64);
  const RandomWords words(uint64_t{6});
  DatasetSource plain(dataset, {"poisson", 8, 1, 8, 0}, words, c10::kCPU),
      ahead(dataset, {"poisson", 8, 1, 8, 5}, words, c10::kCPU);
  for (int step = 0; step < 30; ++step)
    EXPECT_EQ(numbers_of(plain.next_step(1)), numbers_of(ahead.next_step(1)));
  EXPECT_GT(ahead.fetching_ms(), 0);
  EXPECT_EQ(ahead.facts()["examples"], 64);
}

}  // namespace
}  // namespace moonshard::data
