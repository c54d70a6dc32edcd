// Claims and checkpoints: a claim goes on where everything vouches for it, and a lost one stays
// lost, for whatever reason it was lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <cmath>
#include <functional>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/core/random_words.h"
#include "runtime/data/dataset_source.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/privacy/layer_rules.h"
#include "tests/runtime/checkpoint/checkpoint_support.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Vectors for linear-tiny; example n depends on n alone.
class Waves : public data::Dataset {
 public:
  int64_t size() const override { return 64; }
  Batch batch(const std::vector<int64_t>& examples) const override {
    const auto count = static_cast<int64_t>(examples.size());
    Batch batch;
    batch.inputs = at::empty({count, 8});
    for (int64_t i = 0; i < count; ++i)
      batch.inputs[i] =
          at::sin(at::arange(8) + 0.7 * static_cast<double>(examples[static_cast<size_t>(i)]));
    batch.targets = batch.inputs.cos();
    return batch;
  }
  Json facts() const override { return nullptr; }
};

struct ClaimSetting {
  std::string mode = "bookkeeping", sampler = "poisson";
  double noise = 1;
  bool secure = true, secret_samples = true, with_data = true;
  sharding::ShardingOptions sharding;
};

struct ClaimRun {
  explicit ClaimRun(const ClaimSetting& setting = {},
                    std::shared_ptr<models::Model> shared = nullptr) {
    models::ModelOptions options;
    options.model = "linear-tiny";
    options.device = "cpu";
    options.hidden_dim = 8;
    options.num_layers = 2;
    options.seed = 3;
    model = shared != nullptr ? shared : models::make_model(options);
    train::TrainerParts parts;
    parts.model = model;
    parts.clip.mode = setting.mode;
    parts.clip.noise_multiplier = setting.noise;
    parts.sharding = setting.sharding;
    parts.privacy.secure = setting.secure;
    if (setting.with_data) {
      const bool drawn = setting.sampler == "poisson";
      const data::LoaderOptions loader{setting.sampler, drawn ? 64 : 8, 1, drawn ? 8 : 0, 1};
      const RandomWords words =
          setting.secret_samples ? RandomWords(draw_secret_key()) : RandomWords(uint64_t{5});
      parts.data = std::make_unique<data::DatasetSource>(std::make_shared<Waves>(), loader, words,
                                                         c10::kCPU);
    }
    trainer = std::make_unique<train::Trainer>(std::move(parts));
  }
  std::string why() const { return trainer->account().why_no_epsilon(); }

  std::shared_ptr<models::Model> model;
  std::unique_ptr<train::Trainer> trainer;
};

// Saved and resumed twice by trainers that would have a claim of their own.
void expect_lost(ClaimRun& first, const std::string& reason) {
  EXPECT_THAT(first.why(), HasSubstr(reason));
  const TemporaryFolder folder, again;
  save(*first.trainer, folder.path());
  ClaimRun second;
  EXPECT_EQ(second.why(), "");
  resume(*second.trainer, folder.path());
  EXPECT_THAT(second.why(), HasSubstr("the resumed run had none: " + reason));
  second.trainer->step();
  EXPECT_THAT(second.why(), HasSubstr(reason));
  save(*second.trainer, again.path());
  ClaimRun third;
  resume(*third.trainer, again.path());
  EXPECT_THAT(third.why(), HasSubstr(reason)) << "after a second checkpoint";
  EXPECT_TRUE(std::isnan(third.trainer->account().record().epsilon));
}

TEST(CheckpointClaim, GoesOnWhereEverythingVouchesForIt) {
  const TemporaryFolder folder;
  ClaimRun first;
  first.trainer->step();
  save(*first.trainer, folder.path());
  ClaimRun second;
  resume(*second.trainer, folder.path());
  second.trainer->step();
  EXPECT_EQ(second.why(), "");
  EXPECT_EQ(second.trainer->account().history().num_steps(), 2);
}

TEST(CheckpointClaim, LostByTheWayBatchesAreDrawnStaysLost) {
  for (const auto& [sampler, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fixed", "sampler = fixed"}, {"shuffled", "sampler = shuffled"}}) {
    ClaimSetting setting;
    setting.sampler = sampler;
    ClaimRun run(setting);
    run.trainer->step();
    expect_lost(run, reason);
  }
  ClaimSetting given;
  given.with_data = false;
  ClaimRun without_data(given), one_batch;
  without_data.trainer->step(Waves().batch({1, 2}));
  expect_lost(without_data, "batches are given by the script");
  one_batch.trainer->step();
  one_batch.trainer->step(Waves().batch({1, 2}));
  expect_lost(one_batch, "a step's batch was given by the script");
}

TEST(CheckpointClaim, LostByNoiseOrSamplesThatCanBeRepeatedStaysLost) {
  ClaimSetting noise, samples;
  noise.secure = false;
  samples.secret_samples = false;
  ClaimRun with_known_noise(noise), with_known_samples(samples);
  with_known_noise.trainer->step();
  with_known_samples.trainer->step();
  expect_lost(with_known_noise, "reproducible noise");
  expect_lost(with_known_samples, "samples are drawn from the seed");
}

TEST(CheckpointClaim, LostToAnotherTrainerOfTheModelStaysLost) {
  ClaimRun run;
  run.trainer->step();
  ClaimRun other({}, run.model);
  other.trainer->step();
  expect_lost(other, "another trainer has updated the same model");
}

TEST(CheckpointClaim, LostByNormsOfAScriptStaysLost) {
  struct Loud : privacy::LayerRule {
    at::Tensor per_sample(const models::ParamLayer&, const at::Tensor& a,
                          const at::Tensor& g) const override {
      return at::bmm(g.unsqueeze(2), a.unsqueeze(1));
    }
    at::Tensor squares(const models::ParamLayer&, const at::Tensor&, const at::Tensor& g,
                       const privacy::NormSettings&) const override {
      return at::zeros({g.size(0)}, at::kDouble);
    }
  };
  privacy::register_rule("loud", std::make_shared<Loud>());
  ClaimRun run;
  const std::string kind = run.model->layers().front()->kind;
  run.model->layers().front()->kind = "loud";
  run.trainer->step();
  run.model->layers().front()->kind = kind;
  privacy::register_rule("loud", nullptr);
  expect_lost(run, "layer '");

  privacy::register_engine({"of_a_script", "norms of a test"},
                           [](const privacy::ClipOptions& options, auto clipping) {
                             privacy::ClipOptions built_in = options;
                             built_in.mode = "ghost";
                             return privacy::make_engine(built_in, clipping);
                           });
  {
    ClaimSetting setting;
    setting.mode = "of_a_script";
    ClaimRun scripted(setting);
    scripted.trainer->step();
    expect_lost(scripted, "mode = of_a_script: an engine of a script");
  }
  privacy::unregister_engine("of_a_script");
}

TEST(CheckpointClaim, LostByMixedNormsStaysLost) {
  ClaimSetting setting;
  setting.sharding.parallel = "fsdp";
  setting.sharding.norm_reduce = "sum";
  ClaimRun run(setting);
  run.trainer->step();
  expect_lost(run, "norm_reduce = sum");
}

// Steps without noise and steps of plain training are no part of a private run at all.
TEST(CheckpointClaim, StepsThatHideNothingAreNotResumedByAPrivateRun) {
  ClaimSetting plain, silent;
  plain.mode = "none";
  silent.noise = 0;
  const std::vector<std::pair<ClaimSetting, std::string>> cases = {
      {plain, "expected no private engine, as saved"}, {silent, "expected noise_multiplier 0"}};
  for (const auto& [setting, text] : cases) {
    const TemporaryFolder folder;
    ClaimRun run(setting), other, same_kind(setting);
    run.trainer->step();
    EXPECT_NE(run.why(), "");
    save(*run.trainer, folder.path());
    EXPECT_THAT([&] { resume(*other.trainer, folder.path()); },
                ThrowsMessage<UsageError>(HasSubstr(text)));
    EXPECT_EQ(other.why(), "");
    resume(*same_kind.trainer, folder.path());
    EXPECT_NE(same_kind.why(), "");
  }
}

TEST(CheckpointClaim, AHalfDoneStepIsNotSaved) {
  const TemporaryFolder folder;
  ClaimRun run;
  run.trainer->step();
  // One number seen as many cannot be written to: the update of this one fails after others'.
  models::Parameter& bias = run.model->parameter("layers.0.bias");
  const at::Tensor good = bias.value;
  bias.value = at::zeros({1}).expand(good.sizes());
  EXPECT_ANY_THROW(run.trainer->step());
  bias.value = good;
  EXPECT_THAT(run.why(), HasSubstr("begun to update"));
  EXPECT_THAT([&] { save(*run.trainer, folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("expected whole weights")));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

// ---- nobody vouches for the account ------------------------------------------------------------

TEST(CheckpointClaim, OfAnOlderVersionIsNotTakenOverButItsWeightsAre) {
  const TemporaryFolder folder;
  ClaimRun first;
  first.trainer->step();
  const fs::path saved = save(*first.trainer, folder.path());
  Json index = read_json_file(saved / kIndexName);
  const auto expect = [&](const std::string& reason) {
    write_text(saved / kIndexName, of_version_1(index));
    ClaimRun second;
    EXPECT_EQ(resume(*second.trainer, folder.path()), 1);
    EXPECT_EQ(second.why(), "the resumed run had none: " + reason);
    const auto& before = first.model->parameters();
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(at::equal(before[i]->value, second.model->parameters()[i]->value));
    EXPECT_EQ(second.trainer->step().step, 2);
  };
  expect("an older version saved it, without checksums: an edit would go unseen");
  index["privacy"].erase("why_no_epsilon");
  expect("an older version saved it, without saying whether its claim held");
}

TEST(CheckpointClaim, UnderAKeyIsMadeByItsHoldersAlone) {
  const TemporaryFolder folder, keys, again;
  const fs::path key = keys.path() / "key";
  write_text(key, "sixteen bytes...");
  ClaimRun first;
  first.trainer->step();
  ::setenv(kKeyVariable, key.c_str(), 1);
  save(*first.trainer, folder.path());
  ClaimRun second;
  resume(*second.trainer, folder.path());
  EXPECT_EQ(second.why(), "");
  ::unsetenv(kKeyVariable);
  ClaimRun third;
  EXPECT_EQ(resume(*third.trainer, folder.path()), 1);
  EXPECT_EQ(third.why(),
            "the resumed run had none: its HMAC was not checked, as MOONSHARD_CHECKPOINT_KEY_FILE "
            "was not set");
  EXPECT_EQ(third.trainer->step().step, 2);
  // Nor does it come back with the key.
  ::setenv(kKeyVariable, key.c_str(), 1);
  save(*third.trainer, again.path());
  ClaimRun fourth;
  resume(*fourth.trainer, again.path());
  ::unsetenv(kKeyVariable);
  EXPECT_THAT(fourth.why(), HasSubstr("its HMAC was not checked"));
}

}  // namespace
}  // namespace moonshard::checkpoint
