// No number of the noise is drawn twice in a run: over steps, elements, shards, resumes, the count
// of adaptive clipping and the drawing of samples; reproducible and under a secret. Trainers make
// steps without samples, whose gradients are noise alone.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <set>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/random_words.h"
#include "runtime/data/sampler.h"
#include "runtime/models/registry.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {
namespace {

// Numbers of secret noise lie on a grid of a few hundred points: by chance four in a row come twice
// among a million, sixteen do not.
size_t telling_length(bool secure) {
  return secure ? 16 : 4;
}

// So many successive numbers, at every place, as one hash.
void add_stretches(const at::Tensor& numbers, size_t length, std::vector<uint64_t>& stretches) {
  const at::Tensor host = numbers.to(at::kFloat).flatten().contiguous();
  const auto count = static_cast<size_t>(host.numel());
  std::vector<uint32_t> words(count);
  std::memcpy(words.data(), host.const_data_ptr(), count * sizeof(uint32_t));
  for (size_t i = 0; i + length <= count; ++i) {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (size_t k = 0; k < length; ++k) {
      hash = (hash ^ words[i + k]) * 0xD6E8FEB86659FD93u;
      hash ^= hash >> 32;
    }
    stretches.push_back(hash);
  }
}

size_t repeated(std::vector<uint64_t>& stretches) {
  std::sort(stretches.begin(), stretches.end());
  size_t twice = 0;
  for (size_t i = 1; i < stretches.size(); ++i) twice += stretches[i] == stretches[i - 1];
  return twice;
}

constexpr double kExpectedBatch = 20;

struct NoiseOnly {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<Trainer> trainer;
  std::map<std::string, at::Tensor> noise;  ///< of the last step, by parameter

  StepReport step() {
    Batch none;
    none.inputs = none.targets = at::empty({0, model->options().hidden_dim});
    return trainer->step(none);
  }
};

std::unique_ptr<NoiseOnly> noise_only(bool secure, int64_t width, const char* clipping = "flat") {
  auto run = std::make_unique<NoiseOnly>();
  models::ModelOptions options;
  options.model = "linear-tiny";
  options.device = "cpu";
  options.hidden_dim = width;
  options.num_layers = 2;
  options.seed = 17;
  run->model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = "bookkeeping";
  clip.clipping = clipping;
  StepOptions step;
  step.expected_batch_size = static_cast<int64_t>(kExpectedBatch);
  privacy::PrivacyOptions privacy;
  privacy.secure = secure;
  run->trainer = std::make_unique<Trainer>(
      TrainerParts{.model = run->model, .clip = clip, .step = step, .privacy = privacy});
  run->trainer->observe_gradients([run = run.get()](const models::Model& model) {
    for (const auto& parameter : model.parameters())
      run->noise[parameter->name] = parameter->grad.clone();
  });
  return run;
}

class NoiseStreams : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Generators, NoiseStreams, testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Secret" : "Reproducible"; });

TEST_P(NoiseStreams, NeverRepeatOverThousandsOfSteps) {
  const auto run = noise_only(GetParam(), 9);
  std::vector<uint64_t> stretches;
  for (int step = 0; step < 2100; ++step) {
    run->step();
    for (const auto& [name, noise] : run->noise)
      add_stretches(noise, telling_length(GetParam()) / 2, stretches);
  }
  // The biases have nine numbers: stretches of half the length, so that they take part. Eight
  // numbers of the grid come twice by chance in one run of ten thousand; of a step that comes twice
  // there are a hundred.
  EXPECT_LE(repeated(stretches), GetParam() ? 3u : 0u);
}

TEST_P(NoiseStreams, NeverRepeatWithinLargeParameters) {
  const int64_t width = 373;
  ASSERT_GT(width * width, 1 << 17);
  const auto run = noise_only(GetParam(), width);
  std::vector<uint64_t> stretches;
  for (int step = 0; step < 2; ++step) {
    run->step();
    for (const auto& [name, noise] : run->noise)
      add_stretches(noise, telling_length(GetParam()), stretches);
  }
  EXPECT_EQ(repeated(stretches), 0u);
}

// Shards of one parameter: together the whole, and no stretch twice.
TEST_P(NoiseStreams, OfShardsAreTheWholeOnce) {
  optim::NoiseSpec spec;
  spec.std = 1;
  spec.key = 17;
  spec.step = 3;
  if (GetParam()) spec.secret = std::make_shared<kernels::ChaChaKey>(draw_secret_key());
  const int64_t count = (1 << 18) + 77;
  at::Tensor whole = at::zeros({count});
  optim::draw_noise(whole, spec, 5);
  std::vector<at::Tensor> shards;
  const int64_t cuts[] = {0, 1000, 1 << 17, (1 << 17) + 3, 200001, count};
  for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
    at::Tensor shard = at::zeros({cuts[i + 1] - cuts[i]});
    optim::draw_noise(shard, spec, 5, cuts[i]);
    shards.push_back(shard);
  }
  EXPECT_TRUE(at::equal(at::cat(shards), whole));
  std::vector<uint64_t> stretches;
  add_stretches(whole, telling_length(GetParam()), stretches);
  EXPECT_EQ(repeated(stretches), 0u);
}

// A step that is done again after a resume has other noise where it is to be private; reproducible
// noise goes on where it was.
TEST_P(NoiseStreams, NeverRepeatAfterAResume) {
  const auto run = noise_only(GetParam(), 24);
  std::vector<uint64_t> stretches;
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      run->step();
      for (const auto& [name, noise] : run->noise)
        add_stretches(noise, telling_length(GetParam()), stretches);
    }
  };
  const RunState start = run->trainer->state();
  steps(3);
  if (GetParam()) run->trainer->restore(start);
  if (!GetParam()) run->trainer->restore(run->trainer->state());
  steps(3);
  EXPECT_EQ(repeated(stretches), 0u);
}

// The count's noise is the same element's in no step but by chance.
TEST_P(NoiseStreams, OfTheCountIsNoGradients) {
  const auto run = noise_only(GetParam(), 12, "adaptive");
  const privacy::ClipOptions& clip = run->trainer->clip_options();
  const double count_std = kExpectedBatch / 20;
  const int steps = 30;
  std::vector<at::Tensor> matches;
  for (int step = 0; step < steps; ++step) {
    const double std = privacy::Clipping(clip).noise_std(static_cast<int64_t>(kExpectedBatch)) /
                       clip.max_grad_norm;
    const StepReport report = run->step();
    const double moved = std::log(run->trainer->clip_bound() / report.clip_bound);
    const double count = (clip.target_quantile - 0.5 - moved / clip.quantile_lr) * kExpectedBatch;
    std::vector<at::Tensor> normals;
    for (const auto& [name, noise] : run->noise)
      normals.push_back((noise * (kExpectedBatch / (std * report.clip_bound))).flatten());
    matches.push_back((at::cat(normals) - count / count_std).abs().lt(0.03).to(at::kDouble));
  }
  // Two normals are within 0.03 of each other once in 60 times; five in 30 steps are rare, of 300
  // elements, and ten do not come.
  EXPECT_LT(at::stack(matches).sum(0).max().item<double>(), 10);
}

// The words of a stream of normals as the uniform numbers that a sampler would make of them: of
// every four normals the two angles.
std::vector<double> uniforms_of(const kernels::NoiseStream& stream, int64_t count) {
  at::Tensor normals = at::zeros({2 * count}, at::kDouble);
  kernels::add_counter_noise(normals, 1, stream);
  std::vector<double> uniforms;
  for (int64_t i = 0; i < count; ++i) {
    const double* pair = normals.const_data_ptr<double>() + 2 * i;
    const double turns = std::atan2(pair[1], pair[0]) / (2 * std::numbers::pi);
    uniforms.push_back(turns < 0 ? turns + 1 : turns);
  }
  return uniforms;
}

TEST(NoiseStreams, AreNotWhatSamplesAreDrawnFrom) {
  const int64_t examples = 1000, batch = 50;
  const auto sampler = data::make_sampler({"poisson", examples, batch}, RandomWords(uint64_t{17}));
  const double tails = std::log1p(-static_cast<double>(batch) / examples);
  for (const uint32_t purpose : {0u, 1u, 2u, 3u, kernels::kPurposeClipCount,
                                 kernels::kPurposeInitialWeights, kernels::kPurposeData}) {
    for (const uint32_t later : {0u, 1u}) {  // steps of samplers begin at 0, of noise at 1
      size_t same = 0, drawn = 0;
      for (uint32_t step = 0; step < 10; ++step) {
        std::set<int64_t> predicted;
        double place = -1;
        for (const double u : uniforms_of({17, step + later, purpose}, 200)) {
          place += 1 + std::floor(std::log(u) / tails);
          predicted.insert(static_cast<int64_t>(place));
        }
        for (const int64_t example : sampler->examples_of(step)) {
          ++drawn;
          same += predicted.contains(example);
        }
      }
      ASSERT_GT(drawn, 300u);
      EXPECT_LT(static_cast<double>(same), 0.3 * static_cast<double>(drawn))
          << "purpose " << purpose << ", " << later << " steps later";
    }
  }
}

TEST(NoiseStreams, OfASecretRunHaveASecretOfTheirOwn) {
  const auto run = noise_only(true, 9);
  const auto other = noise_only(true, 9);
  const std::string noise = run->trainer->account().secret_name();
  EXPECT_NE(noise, other->trainer->account().secret_name());
  run->trainer->restore(run->trainer->state());
  EXPECT_NE(run->trainer->account().secret_name(), noise);
}

// Of keys with 32 bits of entropy, however they are spread, ten pairs of these would be the same.
TEST(NoiseStreams, HaveKeysOfMoreThanAFewBits) {
  const size_t count = 300'000;
  std::vector<uint64_t> keys;
  std::vector<uint32_t> words[8];
  for (size_t i = 0; i < count; ++i) {
    const kernels::ChaChaKey key = draw_secret_key();
    uint64_t hash = 0;
    for (int w = 0; w < 8; ++w) {
      hash = (hash ^ key.word[w]) * 0xD6E8FEB86659FD93u;
      hash ^= hash >> 32;
      words[w].push_back(key.word[w]);
    }
    keys.push_back(hash);
  }
  EXPECT_EQ(repeated(keys), 0u);
  for (std::vector<uint32_t>& word : words) {  // and every word takes part
    std::sort(word.begin(), word.end());
    const auto different = std::unique(word.begin(), word.end()) - word.begin();
    EXPECT_GT(different, static_cast<std::ptrdiff_t>(count) - 100);
  }
}

}  // namespace
}  // namespace moonshard::train
