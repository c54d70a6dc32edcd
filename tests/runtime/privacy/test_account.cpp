// A run's budget from calibration to checkpoint: what may be claimed, when steps end, that
// splitting and ranks change nothing, and that noise comes once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include "runtime/accountant/epsilon.h"
#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/dataset_source.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/records/schema_json.h"
#include "runtime/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::train {
namespace {

using testing::HasSubstr;

// Vectors for linear-tiny; example n depends on n alone.
class Vectors : public data::Dataset {
 public:
  Vectors(int64_t size, int64_t width) : size_(size), width_(width) {}
  int64_t size() const override { return size_; }
  Batch batch(const std::vector<int64_t>& examples) const override {
    Batch batch;
    const auto count = static_cast<int64_t>(examples.size());
    const at::Tensor numbers = at::tensor(examples, at::kLong).to(at::kFloat).unsqueeze(1);
    const at::Tensor along = at::arange(width_, at::kFloat).unsqueeze(0);
    batch.inputs = count > 0 ? at::sin(numbers * 0.7f + along) : at::empty({0, width_});
    batch.targets = count > 0 ? at::cos(numbers * 1.3f + along) : at::empty({0, width_});
    return batch;
  }
  Json facts() const override { return nullptr; }

 private:
  int64_t size_, width_;
};

struct Setting {
  std::string mode = "bookkeeping", sampler = "poisson", clipping = "flat";
  int64_t examples = 64, batch_size = 64, expected = 8, seed = 3;
  double noise = 1.0, lr = 0.1;
  privacy::PrivacyOptions privacy;
  bool with_data = true;
};

struct Training {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<Trainer> trainer;

  at::Tensor weights() const {
    std::vector<at::Tensor> all;
    for (const auto& parameter : model->parameters()) all.push_back(parameter->value.flatten());
    return at::cat(all).clone();
  }
};

Training make(const Setting& setting, std::shared_ptr<models::Model> model = nullptr) {
  models::ModelOptions options;
  options.model = "linear-tiny";
  options.device = "cpu";
  options.hidden_dim = 16;
  options.num_layers = 2;
  options.seed = setting.seed;
  Training run;
  run.model = model != nullptr ? model : models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = setting.mode;
  clip.clipping = setting.clipping;
  clip.noise_multiplier = setting.noise;
  clip.max_grad_norm = 0.5;
  clip.quantile_noise = 2;
  optim::OptimizerOptions optimizer;
  optimizer.lr = setting.lr;
  std::unique_ptr<data::Source> source;
  if (setting.with_data) {
    const data::LoaderOptions loader{setting.sampler, setting.batch_size, 1, setting.expected, 1};
    // A secret as the source sees it, but the same in every run, so that tests repeat.
    kernels::ChaChaKey key{};
    key.word[0] = static_cast<uint32_t>(setting.seed);
    const auto words = setting.privacy.secure ? RandomWords(key)
                                              : RandomWords(static_cast<uint64_t>(setting.seed));
    source = std::make_unique<data::DatasetSource>(
        std::make_shared<Vectors>(setting.examples, run.model->options().hidden_dim), loader, words,
        c10::kCPU);
  }
  run.trainer = std::make_unique<Trainer>(
      TrainerParts{run.model, clip, optimizer, std::move(source), StepOptions{},
                   sharding::ShardingOptions{}, nullptr, setting.privacy});
  return run;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Budget, ATargetChoosesTheNoiseAndEndsTheRun) {
  for (const char* accountant : {"rdp", "prv"}) {
    Setting setting;
    setting.privacy.target_epsilon = 3;
    setting.privacy.epochs = 2;
    setting.privacy.accountant = accountant;
    Training run = make(setting);
    EXPECT_EQ(run.trainer->account().planned_steps(), 16);  // 2 x 64 / 8
    double last = 0;
    for (int step = 0; step < 16; ++step) {
      const StepReport report = run.trainer->step();
      ASSERT_TRUE(report.epsilon.has_value());
      EXPECT_GE(*report.epsilon, last);
      EXPECT_LE(*report.epsilon, 3);
      last = *report.epsilon;
    }
    const accountant::Epsilon spent = run.trainer->account().epsilon();
    EXPECT_LE(spent.epsilon, 3);
    EXPECT_GT(spent.epsilon, 2.97) << accountant;
    if (spent.lower > 0) {
      EXPECT_GE(last, spent.lower) << "progress is never below the truth";
    }
    const at::Tensor before = run.weights();
    EXPECT_THAT(message_of([&] { run.trainer->step(); }),
                HasSubstr("expected steps within the budget of epsilon 3"));
    EXPECT_TRUE(at::equal(run.weights(), before));
    const Json record = records::json_of(run.trainer->account().record());
    EXPECT_EQ(record["accountant"], accountant);
    EXPECT_EQ(record["history"].size(), 1u);
    EXPECT_EQ(record["history"][0]["steps"], 16);
    EXPECT_EQ(record["noise"], "secure");
  }
}

TEST(Budget, ClaimsNothingWhereNothingIsAccounted) {
  const auto why = [](const Setting& setting) {
    Training run = make(setting);
    run.trainer->step();
    const Json record = records::json_of(run.trainer->account().record());
    EXPECT_TRUE(record["epsilon"].is_null());
    return record["why_no_epsilon"].get<std::string>();
  };
  Setting setting;
  setting.sampler = "shuffled";
  setting.batch_size = 8;
  EXPECT_THAT(why(setting), HasSubstr("sampler = shuffled"));
  setting.sampler = "fixed";
  EXPECT_THAT(why(setting), HasSubstr("sampler = fixed"));
  setting = {};
  setting.mode = "none";
  EXPECT_THAT(why(setting), HasSubstr("mode = none"));
  setting = {};
  setting.noise = 0;
  EXPECT_THAT(why(setting), HasSubstr("noise_multiplier = 0"));

  Training run = make({});
  EXPECT_TRUE(run.trainer->account().has_claim());
  run.trainer->step(Vectors(4, 16).batch({0, 1}));
  EXPECT_THAT(run.trainer->account().why_no_epsilon(), HasSubstr("given by the script"));
  setting = {};
  setting.privacy.target_epsilon = 3;
  EXPECT_THAT(message_of([&] { make(setting); }), HasSubstr("epochs or budget_steps"));
  setting.sampler = "fixed";
  setting.batch_size = 8;
  setting.privacy.budget_steps = 5;
  EXPECT_THAT(message_of([&] { make(setting); }), HasSubstr("sampler = fixed"));
}

// Who has the seed, which is in the result, replays a step without samples and has the noise.
TEST(Budget, ReproducibleNoiseMakesNoClaim) {
  Setting setting;
  setting.privacy.secure = false;
  Training run = make(setting);
  run.trainer->step();
  EXPECT_THAT(run.trainer->account().why_no_epsilon(),
              HasSubstr("reproducible noise: not private"));
  EXPECT_FALSE(run.trainer->step().epsilon.has_value());
  setting.privacy.target_epsilon = 3;
  setting.privacy.budget_steps = 5;
  EXPECT_THAT(message_of([&] { make(setting); }),
              HasSubstr("expected a run that can claim one, got reproducible noise"));
  EXPECT_TRUE(privacy::PrivacyOptions{}.secure) << "secret noise is the default";
}

// Sampling saves privacy only where nobody knows which samples were used.
TEST(Budget, SamplesDrawnFromASeedMakeNoClaim) {
  const auto why = [](double rate, const RandomWords& words) {
    const auto size = static_cast<int64_t>(64 * rate);
    return data::make_sampler({"poisson", 64, size}, words)->sampling().why_no_epsilon;
  };
  const RandomWords seed(uint64_t{3}), secret(draw_secret_key());
  EXPECT_THAT(why(0.25, seed), HasSubstr("samples are drawn from the seed"));
  EXPECT_EQ(why(0.25, secret), "");
  EXPECT_EQ(why(1, seed), "") << "all samples in every step: there is nothing to know";
}

// The most that fits at once is no part of the result: whole, in parts of 3, or one by one.
TEST(Budget, SplittingADrawIntoPartsThatFitChangesNothing) {
  Setting setting;
  setting.privacy.secure = false;
  setting.expected = 12;
  Training whole = make(setting);
  std::vector<Training> parts;
  for (const int64_t most : {3, 1}) {
    setting.batch_size = most;
    parts.push_back(make(setting));
  }
  for (int step = 0; step < 6; ++step) {
    const StepReport want = whole.trainer->step();
    for (Training& run : parts) {
      const StepReport got = run.trainer->step();
      EXPECT_EQ(got.batch_size, want.batch_size);
      EXPECT_LT((run.weights() - whole.weights()).abs().max().item<double>(), 2e-6);
    }
  }
}

// T22: a step without samples adds its noise, divides by the expected batch and counts.
TEST(Budget, AnEmptyDrawIsAStepOfNoiseAlone) {
  Setting setting;
  setting.examples = 64;
  setting.expected = 1;
  Training run = make(setting);
  int empty = 0;
  for (int step = 0; step < 60; ++step) {
    const at::Tensor before = run.weights();
    const StepReport report = run.trainer->step();
    if (report.batch_size > 0) continue;
    ++empty;
    const at::Tensor moved = (run.weights() - before) / -0.1;  // lr; divided by 1
    EXPECT_NEAR(moved.std().item<double>(), 0.5, 0.1) << "noise_multiplier x C";
    EXPECT_EQ(report.privacy_steps, step + 1);
  }
  EXPECT_GT(empty, 3);
  EXPECT_EQ(run.trainer->account().history().num_steps(), 60);
}

TEST(Budget, SecureNoiseHasTheSameStrengthAndCannotBeRepeated) {
  Setting setting;
  setting.mode = "ghost";
  setting.privacy.secure = true;
  const auto noise_of_a_step = [&] {
    Training run = make(setting);
    at::Tensor gradient;
    run.trainer->observe_gradients([&](const models::Model& model) {
      std::vector<at::Tensor> all;
      for (const auto& parameter : model.parameters()) all.push_back(parameter->grad.flatten());
      gradient = at::cat(all).clone();
    });
    run.trainer->step();
    EXPECT_EQ(records::json_of(run.trainer->account().record())["noise"],
              setting.privacy.secure ? "secure" : "counter");
    return gradient;
  };
  const at::Tensor a = noise_of_a_step(), b = noise_of_a_step();
  // The same batch and the same weights: what differs is the noise, of std sigma x C / expected.
  const at::Tensor difference = a - b;
  EXPECT_NEAR(difference.std().item<double>(), std::sqrt(2.0) * 0.5 / 8, 0.012);
  setting.privacy.secure = false;
  EXPECT_TRUE(at::equal(noise_of_a_step(), noise_of_a_step()));
}

TEST(Budget, SecureStepsUpdateWithOrWithoutAnObserver) {
  Setting setting;
  setting.privacy.secure = true;
  setting.lr = 1;
  for (const bool observed : {false, true}) {
    Training run = make(setting);
    const at::Tensor before = run.weights();
    if (observed) run.trainer->observe_gradients([](const models::Model&) {});
    run.trainer->step();
    const double moved = (run.weights() - before).std().item<double>();
    EXPECT_GT(moved, 0.04) << "noise alone moves by 0.0625";
    EXPECT_LT(moved, 0.12);
  }
}

// T11: the account goes on exactly; a run that is another kind of run is not let through.
TEST(Budget, ACheckpointCarriesTheAccount) {
  const TemporaryFolder folder;
  Setting setting;
  setting.privacy.target_epsilon = 3;
  setting.privacy.epochs = 2;
  Training whole = make(setting);
  Training first = make(setting);
  for (int step = 0; step < 16; ++step) whole.trainer->step();
  for (int step = 0; step < 7; ++step) first.trainer->step();
  checkpoint::save(*first.trainer, folder.path());
  Training second = make(setting);
  checkpoint::resume(*second.trainer, folder.path());
  EXPECT_EQ(second.trainer->account().history().num_steps(), 7);
  for (int step = 7; step < 16; ++step) second.trainer->step();
  EXPECT_EQ(second.trainer->account().epsilon().epsilon,
            whole.trainer->account().epsilon().epsilon);
  EXPECT_THROW(second.trainer->step(), UsageError);

  // Other noise from here on: the account has both kinds of steps.
  Setting louder = setting;
  louder.privacy = {};
  louder.noise = 4;
  Training third = make(louder);
  checkpoint::resume(*third.trainer, folder.path());
  third.trainer->step();
  EXPECT_EQ(third.trainer->account().history().phases().size(), 2u);
  EXPECT_TRUE(third.trainer->account().has_claim());

  // A tighter budget than what is spent already allows no step.
  Setting tighter = setting;
  tighter.privacy.target_epsilon = 1;
  Training fourth = make(tighter);
  checkpoint::resume(*fourth.trainer, folder.path());
  EXPECT_THAT(message_of([&] { fourth.trainer->step(); }), HasSubstr("within the budget"));
  EXPECT_GT(fourth.trainer->account().record().epsilon, 1) << "what is spent, not what was planned";
}

TEST(Budget, ARunWithoutAnAccountStaysWithoutOneWhenItGoesOn) {
  const TemporaryFolder folder;
  Setting setting;
  setting.sampler = "fixed";
  setting.batch_size = 8;
  Training first = make(setting);
  first.trainer->step();
  checkpoint::save(*first.trainer, folder.path());
  Training second = make({});
  checkpoint::resume(*second.trainer, folder.path());
  EXPECT_THAT(second.trainer->account().why_no_epsilon(),
              HasSubstr("the resumed run had none: sampler = fixed"));
}

// An account is of one trainer's steps, and two trainers of one model draw the same noise.
TEST(Budget, TwoTrainersOfOneModelClaimNothing) {
  const TemporaryFolder folder;
  Training first = make({});
  first.trainer->step();
  EXPECT_TRUE(first.trainer->account().has_claim());
  checkpoint::save(*first.trainer, folder.path());
  Training second = make({}, first.model);
  second.trainer->step();
  EXPECT_THAT(second.trainer->account().why_no_epsilon(), HasSubstr("another trainer"));
  EXPECT_THAT(first.trainer->account().why_no_epsilon(), HasSubstr("another trainer"));
  // Weights and account of a checkpoint: whatever happened to the model before is gone.
  Training third = make({}, first.model);
  checkpoint::resume(*third.trainer, folder.path());
  third.trainer->step();
  EXPECT_TRUE(third.trainer->account().has_claim());
  EXPECT_EQ(third.trainer->account().history().num_steps(), 2);
  EXPECT_TRUE(make({}).trainer->account().has_claim());
}

// A checkpoint keeps the reason: saving and resuming must not bring a lost claim back.
TEST(Budget, ALostClaimStaysLostInACheckpoint) {
  Setting plain;
  plain.mode = "none";
  for (const int own_steps : {0, 5}) {
    const TemporaryFolder folder;
    Training first = make({});
    for (int step = 0; step < own_steps; ++step) first.trainer->step();
    make(plain, first.model).trainer->step();
    EXPECT_THAT(first.trainer->account().why_no_epsilon(), HasSubstr("another trainer"));
    checkpoint::save(*first.trainer, folder.path());
    Training second = make({});
    checkpoint::resume(*second.trainer, folder.path());
    second.trainer->step();
    EXPECT_THAT(second.trainer->account().why_no_epsilon(),
                HasSubstr("the resumed run had none: another trainer"))
        << own_steps;
  }
  const TemporaryFolder folder;
  Training given = make({});
  given.trainer->step(Vectors(64, 16).batch({1, 2, 3}));
  checkpoint::save(*given.trainer, folder.path());
  Training second = make({});
  checkpoint::resume(*second.trainer, folder.path());
  EXPECT_THAT(second.trainer->account().why_no_epsilon(), HasSubstr("given by the script"));
}

// Norms of a rule that does not come with the program are nobody's proof: this one finds none.
TEST(Budget, ARuleOfAScriptMakesNoClaimWheneverItIsRegistered) {
  struct NoNorms : privacy::LayerRule {
    at::Tensor per_sample(const models::ParamLayer&, const at::Tensor& a,
                          const at::Tensor& g) const override {
      return at::bmm(g.unsqueeze(2), a.unsqueeze(1));
    }
    at::Tensor squares(const models::ParamLayer&, const at::Tensor&, const at::Tensor& g,
                       const privacy::NormSettings&) const override {
      return at::zeros({g.size(0)}, at::kDouble);
    }
  };
  Training run = make({});
  run.trainer->step();
  EXPECT_TRUE(run.trainer->account().has_claim());
  privacy::register_rule("norms of a script", std::make_shared<NoNorms>());
  run.model->layers().front()->kind = "norms of a script";
  run.trainer->step();
  privacy::register_rule("norms of a script", nullptr);
  EXPECT_THAT(run.trainer->account().why_no_epsilon(), HasSubstr("has a rule of a script"));
}

// Weights of steps after the checkpoint may have been seen, and the steps come again with new
// noise.
TEST(Budget, StepsThatAResumeTakesBackStayCharged) {
  const TemporaryFolder folder;
  Setting secure;
  secure.privacy.secure = true;
  Training run = make(secure);
  for (int step = 0; step < 3; ++step) run.trainer->step();
  checkpoint::save(*run.trainer, folder.path());
  run.trainer->step();
  const at::Tensor before = run.weights();
  run.trainer->step();
  checkpoint::resume(*run.trainer, folder.path());
  EXPECT_EQ(run.trainer->account().history().num_steps(), 5);
  run.trainer->step();
  EXPECT_EQ(run.trainer->account().history().num_steps(), 6);
  EXPECT_TRUE(run.trainer->account().has_claim());
  EXPECT_EQ(records::json_of(run.trainer->account().record())["noise"], "secure");
  EXPECT_FALSE(at::allclose(run.weights(), before)) << "noise of a secret that was used before";
}

TEST(Budget, SaysWhichNoiseWasUsedInAllSteps) {
  const TemporaryFolder folder;
  Setting reproducible;
  reproducible.privacy.secure = false;
  Training first = make(reproducible);
  EXPECT_EQ(records::json_of(first.trainer->account().record())["noise"], "none");
  first.trainer->step();
  EXPECT_EQ(records::json_of(first.trainer->account().record())["noise"], "counter");
  checkpoint::save(*first.trainer, folder.path());
  Setting secure;
  secure.privacy.secure = true;
  Training second = make(secure);
  checkpoint::resume(*second.trainer, folder.path());
  second.trainer->step();
  EXPECT_EQ(records::json_of(second.trainer->account().record())["noise"], "mixed");
  EXPECT_THAT(second.trainer->account().why_no_epsilon(), HasSubstr("reproducible noise"));
  Setting plain;
  plain.mode = "none";
  plain.privacy.secure = true;
  Training third = make(plain);
  third.trainer->step();
  EXPECT_EQ(records::json_of(third.trainer->account().record())["noise"], "none");
}

TEST(Budget, APlanIsKeptWithoutATargetToo) {
  Setting setting;
  setting.privacy.budget_steps = 2;
  Training run = make(setting);
  run.trainer->step();
  run.trainer->step();
  EXPECT_THAT(message_of([&] { run.trainer->step(); }), HasSubstr("within the plan (planned: 2)"));
  setting.privacy.epochs = 1;
  EXPECT_THAT(message_of([&] { make(setting); }), HasSubstr("got both"));
}

TEST(Budget, NoiseThatDrownsTheGradientIsSaid) {
  Setting setting;
  setting.privacy.target_epsilon = 0.05;
  setting.privacy.budget_steps = 4;
  testing::internal::CaptureStderr();
  Training run = make(setting);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("will drown it"));
  run.trainer->step();
  const Json record = records::json_of(run.trainer->account().record());
  EXPECT_EQ(record["accountant"], "pld");
  EXPECT_LE(record["epsilon"].get<double>(), 0.05);
  EXPECT_THAT(record["warning"].get<std::string>(), HasSubstr("times the largest mean gradient"));
}

TEST(Budget, TooLittleNoiseIsAReasonAndNotANumber) {
  Setting setting;
  setting.noise = 1e-160;
  Training run = make(setting);
  run.trainer->step();
  const Json record = records::json_of(run.trainer->account().record());
  EXPECT_TRUE(record["epsilon"].is_null());
  EXPECT_THAT(record["why_no_epsilon"].get<std::string>(), HasSubstr("too little"));
  EXPECT_FALSE(record.contains("warning"));
  setting.noise = 1;
  setting.privacy.delta = 0.5;
  EXPECT_THAT(
      records::json_of(make(setting).trainer->account().record())["warning"].get<std::string>(),
      HasSubstr("delta is not below 1 / 64"));
}

// A step that changed nothing is done again on the same samples, or large draws would drop out.
TEST(Budget, AFailedStepIsRepeatedWithTheSameDraw) {
  Setting setting;
  setting.privacy.secure = false;  // weights are compared
  Training run = make(setting), same = make(setting);
  run.trainer->observe_gradients([count = 0](const models::Model&) mutable {
    MS_CHECK(++count != 2, "observer: expected good weather, got rain");
  });
  same.trainer->observe_gradients([](const models::Model&) {});
  EXPECT_EQ(run.trainer->step().batch_size, same.trainer->step().batch_size);
  EXPECT_THROW(run.trainer->step(), UsageError);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(run.trainer->step().batch_size, same.trainer->step().batch_size);
    EXPECT_TRUE(at::equal(run.weights(), same.weights()));
  }
  EXPECT_EQ(run.trainer->privacy_steps(), 5);
}

// One that fails after its update has used its draw: it must not be charged once and made twice.
TEST(Budget, AStepThatFailsAfterItsUpdateIsNotRepeated) {
  Setting setting;
  Training run = make(setting), same = make(setting);
  run.trainer->step();
  same.trainer->step();
  for (const auto& parameter : run.model->parameters()) parameter->value.fill_(NAN);
  EXPECT_THAT(message_of([&] { run.trainer->step(); }), HasSubstr("expected finite weights"));
  EXPECT_EQ(run.trainer->privacy_steps(), 2);
  same.trainer->step();
  for (size_t i = 0; i < run.model->parameters().size(); ++i)
    run.model->parameters()[i]->value.copy_(same.model->parameters()[i]->value);
  for (int step = 0; step < 3; ++step)
    EXPECT_EQ(run.trainer->step().batch_size, same.trainer->step().batch_size);
}

TEST(Budget, AStepThatFailsHalfwayEndsTheClaim) {
  const TemporaryFolder folder;
  Training run = make({});
  run.trainer->step();
  checkpoint::save(*run.trainer, folder.path());
  // One number seen as many cannot be written to: the update of this one fails after others'.
  models::Parameter& bias = run.model->parameter("layers.0.bias");
  const at::Tensor good = bias.value;
  bias.value = at::zeros({1}).expand(good.sizes());
  EXPECT_ANY_THROW(run.trainer->step());
  bias.value = good;
  EXPECT_THAT(run.trainer->account().why_no_epsilon(), HasSubstr("begun to update"));
  // The weights of the checkpoint have a claim again; what was half done is charged.
  checkpoint::resume(*run.trainer, folder.path());
  EXPECT_TRUE(run.trainer->account().has_claim());
  EXPECT_EQ(run.trainer->account().history().num_steps(), 2);
}

TEST(Budget, AdaptiveClippingPaysForItsCountOutOfTheSameBudget) {
  Setting flat, adaptive;
  adaptive.clipping = "adaptive";
  for (Setting* setting : {&flat, &adaptive}) {
    setting->privacy.target_epsilon = 8;
    setting->privacy.epochs = 1;
  }
  Training a = make(flat), b = make(adaptive);
  EXPECT_EQ(a.trainer->clip_options().noise_multiplier, b.trainer->clip_options().noise_multiplier);
  const double sigma = b.trainer->clip_options().noise_multiplier;
  const privacy::Clipping clipping(b.trainer->clip_options());
  const double gradient = clipping.noise_std(8) / clipping.bound(), count = 2.0;
  EXPECT_GT(gradient, sigma);
  EXPECT_NEAR(1 / (gradient * gradient) + 0.25 / (count * count), 1 / (sigma * sigma), 1e-9);
}

}  // namespace
}  // namespace moonshard::train
