// The rate that an account is given is the one that samples are drawn with, also where the examples
// are no multiple of the batch: B / N, not one of so many batches in an epoch.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "runtime/data/dataset_source.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard::data {
namespace {

class Rows : public Dataset {
 public:
  explicit Rows(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Batch batch(const std::vector<int64_t>& examples) const override {
    Batch batch;
    batch.inputs = at::tensor(examples, at::kLong).to(at::kFloat).unsqueeze(1).expand({-1, 3});
    batch.inputs = batch.inputs.remainder(7).contiguous();
    batch.targets = at::ones_like(batch.inputs);
    return batch;
  }
  Json facts() const override { return nullptr; }

 private:
  int64_t size_;
};

struct RateCase {
  int64_t examples, batch;
};
constexpr RateCase kRates[] = {{10, 3}, {7, 4}, {64, 48}, {97, 10}, {5, 5}, {1000003, 256}};

TEST(Rates, AreTheBatchOverTheExamplesWhateverTheRanks) {
  for (const RateCase& one : kRates) {
    const double rate = static_cast<double>(one.batch) / static_cast<double>(one.examples);
    for (const int world : {1, 2, 3}) {
      const LoaderOptions options{"poisson", 2, 1, one.batch, 0};
      const DatasetSource source(std::make_shared<Rows>(one.examples), options,
                                 RandomWords(uint64_t{1}), c10::kCPU, world - 1, world);
      EXPECT_EQ(source.sampling().rate, rate) << one.examples << " " << one.batch;
      EXPECT_EQ(source.sampling().expected_batch_size, one.batch);
      EXPECT_EQ(source.sampling().examples, one.examples);
    }
  }
  // Where nobody says how many: what all ranks' micro-batches hold.
  const DatasetSource source(std::make_shared<Rows>(100), {"poisson", 3, 2, 0, 0},
                             RandomWords(uint64_t{1}), c10::kCPU, 0, 3);
  EXPECT_EQ(source.sampling().rate, 18.0 / 100);
}

TEST(Rates, AreWhatIsDrawn) {
  for (const RateCase& one : kRates) {
    if (one.examples > 100) continue;
    const auto sampler =
        make_sampler({"poisson", one.examples, one.batch}, RandomWords(uint64_t{5}));
    const int64_t steps = 20000;
    double drawn = 0;
    for (int64_t step = 0; step < steps; ++step)
      drawn += static_cast<double>(sampler->examples_of(step).size());
    const double n = static_cast<double>(steps * one.examples), q = sampler->sampling().rate;
    EXPECT_NEAR(drawn / n, q, 4 * std::sqrt(q * (1 - q) / n) + 1e-12) << one.examples;
  }
}

TEST(Rates, AreWhatIsAccountedFor) {
  for (const RateCase& one : kRates) {
    models::ModelOptions options;
    options.model = "linear-tiny";
    options.device = "cpu";
    options.hidden_dim = 3;
    options.num_layers = 1;
    options.seed = 2;
    privacy::ClipOptions clip;
    clip.mode = "bookkeeping";
    clip.noise_multiplier = 2;
    privacy::PrivacyOptions privacy;
    privacy.secure = true;
    privacy.epochs = 2;
    train::Trainer trainer(
        {.model = models::make_model(options),
         .clip = clip,
         .data = std::make_unique<DatasetSource>(std::make_shared<Rows>(one.examples),
                                                 LoaderOptions{"poisson", 300, 1, one.batch, 0},
                                                 RandomWords(draw_secret_key()), c10::kCPU),
         .privacy = privacy});
    const double rate = static_cast<double>(one.batch) / static_cast<double>(one.examples);
    EXPECT_EQ(trainer.account().planned_steps(), (2 * one.examples + one.batch - 1) / one.batch);
    trainer.step();
    trainer.step();
    ASSERT_EQ(trainer.account().why_no_epsilon(), "");
    ASSERT_EQ(trainer.account().history().phases().size(), 1u);
    EXPECT_EQ(trainer.account().history().phases()[0].q, rate);
    accountant::History by_hand;
    by_hand.add({rate, 2, 2});
    EXPECT_DOUBLE_EQ(trainer.account().epsilon().epsilon, by_hand.epsilon("pld", 1e-5).epsilon);
  }
}

}  // namespace
}  // namespace moonshard::data
