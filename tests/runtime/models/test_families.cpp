// A family of models is one class: registered in one place, it works through registry, cost,
// synthetic data, config.json, training and verification. And options are sets: what means nothing
// to a family is refused, unless it has the value that resolved options have for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/data/source.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/config_object.h"
#include "runtime/models/model_cost.h"
#include "runtime/models/model_options.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/cases.h"
#include "runtime/weights/load_model.h"
#include "tests/support/temporary_folder.h"

namespace moonshard {
namespace {

using models::ModelOptions;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// ---- a family in one place --------------------------------------------------------------------

// in_channels values in, tanh between two layers, one value per class out.
class ToyModel : public models::Model {
 public:
  explicit ToyModel(const ModelOptions& options) : Model(options) {
    begin_block();
    in_ = &add_linear("in", options_.in_channels, options_.hidden_dim, true, 0.1);
    end_block();
    out_ = &add_linear("out", options_.hidden_dim, options_.in_channels, false, 0.1);
  }
  at::Tensor forward(const Batch& batch) override {
    return models::linear(at::tanh(models::linear(batch.inputs, *in_)), *out_);
  }
  at::Tensor losses(const Batch& batch) override {
    return models::regression_losses(forward(batch), batch.targets);
  }
  void check(const Batch& batch) const override {
    MS_CHECK(batch.inputs.defined(), "toy: expected inputs, got nothing");
  }

 private:
  models::ParamLayer *in_, *out_;
};

class ToyFamily : public models::Family {
 public:
  ToyFamily()
      : Family({"toy",
                {{"regress", "a vector", {"inputs", "targets"}}},
                {"in_channels"},
                {"hidden_dim", "num_layers", "in_channels"}}) {}

  std::vector<models::Preset> presets() const override {
    ModelOptions o;
    o.model = "toy-tiny";
    o.task = "regress";
    o.hidden_dim = 8;
    o.num_layers = 1;
    o.in_channels = 5;
    ModelOptions without_sizes = o;
    without_sizes.model = "toy";
    without_sizes.hidden_dim = without_sizes.in_channels = 0;
    return {{o, 4, 1, "for a test", true, nullptr},
            {without_sizes, 4, 1, "of the sizes given", false, nullptr}};
  }
  std::string preset_of_hub_name(const std::string& name) const override {
    return name == "toyota-8" ? "toy-tiny" : name;
  }
  std::unique_ptr<models::Model> build(const ModelOptions& o) const override {
    return std::make_unique<ToyModel>(o);
  }
  int64_t tokens_per_sample(const ModelOptions&, int64_t) const override { return 1; }
  Batch synthetic_batch(const ModelOptions& o, int64_t batch_size, int64_t,
                        models::BatchDraws& draws) const override {
    Batch batch;
    std::tie(batch.inputs, batch.targets) =
        draws.two_normals({batch_size, o.in_channels}, at::kFloat);
    return batch;
  }
  int64_t batch_bytes(const ModelOptions& o, int64_t batch_size, int64_t) const override {
    return 2 * batch_size * o.in_channels * 4;
  }
  double flops_per_token(const ModelOptions& o, int64_t) const override {
    return 12.0 * static_cast<double>(o.in_channels * o.hidden_dim);
  }
  models::ActivationBytes activation_bytes(const ModelOptions& o, const models::CostDtypes& f,
                                           int64_t) const override {
    models::ActivationBytes a;
    a.block = a.block_input = f.s * o.in_channels;
    a.outside = f.s * o.hidden_dim;
    a.head_layer = "out";
    return a;
  }
  std::vector<std::string> config_types() const override { return {"toy"}; }
  ModelOptions read_config(const models::ConfigObject& config) const override {
    ModelOptions o;
    o.model = "toy";
    o.hidden_dim = config.integer("width", 1, 100);
    o.in_channels = config.integer("values", 1, 100);
    return o;
  }
  Json write_config(const ModelOptions& o) const override {
    return {{"model_type", "toy"}, {"width", o.hidden_dim}, {"values", o.in_channels}};
  }
  void shrink(ModelOptions& o) const override { o.hidden_dim = 3; }
  std::string frozen_example() const override { return "in.*"; }
};

class ToyIsKnown : public ::testing::Test {
 protected:
  ToyIsKnown() : family_(models::register_family(std::make_unique<ToyFamily>())) {}
  ~ToyIsKnown() override { models::remove_family(family_); }

  static ModelOptions toy(const std::string& model = "toy-tiny") {
    ModelOptions o;
    o.model = model;
    o.device = "cpu";
    return o;
  }

  const models::Family& family_;
};

template <class Call>
std::string usage_error_of(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(ToyIsKnown, ByItsPresetsAndTheirNamesOnTheHub) {
  EXPECT_EQ(models::find_preset("toy-tiny").family, &family_);
  EXPECT_EQ(models::find_preset("Someone/Toyota-8-Chat").sizes.model, "toy-tiny");
  std::vector<std::string> listed;
  for (const models::Preset& preset : models::presets()) listed.push_back(preset.sizes.model);
  EXPECT_THAT(listed, ::testing::Contains("toy-tiny"));
  EXPECT_THAT(listed, ::testing::Not(::testing::Contains("toy")));
  EXPECT_THAT(usage_error_of([] { models::make_model(toy("toy")); }),
              HasSubstr("model 'toy': expected sizes, got none for hidden_dim, in_channels; "));
  ModelOptions wrong = toy();
  wrong.task = "lm";
  EXPECT_EQ(usage_error_of([&] { models::make_model(wrong); }),
            "model 'toy-tiny': expected task regress, got 'lm'");
  EXPECT_THAT(
      usage_error_of([] { models::register_family(std::make_unique<ToyFamily>()); }),
      HasSubstr("expected a new name for a preset of family toy, got 'toy-tiny', which is taken"));
}

TEST_F(ToyIsKnown, ToTheCostModel) {
  const models::ModelCost cost = models::model_cost(toy(), 10, 7);
  EXPECT_EQ(cost.num_parameters, 5 * 8 + 8 + 8 * 5);
  EXPECT_EQ(cost.flops_per_token, 12 * 5 * 8);
  EXPECT_EQ(cost.activation_bytes, 10 * 4 * (5 + 8));
  // The head's gradient is formed while everything is kept.
  EXPECT_EQ(cost.peak_bytes, cost.parameter_bytes + cost.activation_bytes + 4 * 8 * 5);
}

TEST_F(ToyIsKnown, ToSyntheticDataAndTheTrainer) {
  std::shared_ptr<models::Model> model = models::make_model(toy());
  const Batch batch = data::SyntheticData(model->options(), 6, 1).next();
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{6, 5}));
  privacy::ClipOptions clip;
  clip.mode = "materialize";
  train::Trainer trainer({model, clip, optim::OptimizerOptions{}, nullptr});
  EXPECT_GT(trainer.step(batch).loss, 0);
}

TEST_F(ToyIsKnown, ToFilesOfWeights) {
  ModelOptions options = toy();
  options.in_channels = 7;
  const auto model = models::make_model(options);
  const TemporaryFolder folder;
  weights::save_model(*model, folder.path());
  const ModelOptions read = weights::options_from_config(folder.path());
  EXPECT_EQ(read.in_channels, 7);
  EXPECT_EQ(read.hidden_dim, 8);
  ModelOptions by_folder = toy(folder.path().string());
  const auto loaded = weights::make_model(by_folder);
  EXPECT_TRUE(at::equal(loaded->parameter("in.weight").value, model->parameter("in.weight").value));
}

TEST_F(ToyIsKnown, ToVerification) {
  const auto subjects = verify::subjects("toy-tiny");
  ASSERT_EQ(subjects.size(), 1u);
  EXPECT_EQ(subjects[0].task, "regress");
  for (const verify::Variant& variant : verify::variants()) {
    if (variant.needs_option == "checkpointing") {
      EXPECT_FALSE(verify::applies(variant, subjects[0], verify::formats()[0])) << variant.name;
    }
    ModelOptions small = toy();
    privacy::ClipOptions clip;
    train::StepOptions step;
    if (!verify::applies(variant, subjects[0], verify::formats()[0])) continue;
    variant.apply(small, clip, step);
    verify::shrink(variant, small);
    EXPECT_NO_THROW(models::make_model(small)) << variant.name;
  }
}

TEST(Families, AreGoneWhenTheyAreRemoved) {
  const models::Family& family = models::register_family(std::make_unique<ToyFamily>());
  models::remove_family(family);
  EXPECT_FALSE(models::knows_model("toy-tiny"));
}

TEST(Families, NameOnlyOptionsAndTasksOfTheSchema) {
  const OptionSchema& schema = models::model_schema();
  for (const auto& family : models::families()) {
    for (const std::string& name : family->description().options)
      EXPECT_NE(schema.find(name), nullptr) << family->name() << ": " << name;
    for (const std::string& name : family->description().sizes) {
      ASSERT_NE(schema.find(name), nullptr) << family->name() << ": " << name;
      EXPECT_TRUE(family->takes(name)) << family->name() << ": " << name;
    }
    for (const models::Task& task : family->description().tasks)
      EXPECT_THAT(schema.find("task")->words(), ::testing::Contains(task.name));
    for (const models::Preset& preset : family->presets()) {
      const ModelOptions unset;
      for (const Option& option : schema.options()) {
        const bool is_set = option.read(&preset.sizes) != option.read(&unset);
        EXPECT_TRUE(!is_set || family->takes(option.name))
            << preset.sizes.model << ": " << option.name;
      }
    }
  }
  for (const std::string& name : models::options_of_every_family())
    EXPECT_NE(schema.find(name), nullptr) << name;
}

// ---- options as sets --------------------------------------------------------------------------

std::string refusal(const std::string& model, const std::string& option, const Json& value) {
  ModelOptions o;
  o.model = model;
  models::model_schema().assign(&o, option, value);
  return usage_error_of([&] { models::resolve_model_options(o); });
}

TEST(OptionSets, AnOptionThatMeansNothingToTheModelIsRefusedWithTheReason) {
  EXPECT_EQ(refusal("dit-tiny", "qkv_bias", "yes"),
            "model: option 'qkv_bias' means nothing to model dit-tiny (family dit: takes "
            "image_size, patch_size, in_channels, num_classes, positions, norm_affine, "
            "label_dropout, attention, checkpointing, checkpoint_every, intermediate_dim, "
            "num_heads, head_dim, norm_eps); leave it out");
  EXPECT_THAT(refusal("dit-tiny", "num_labels", 5), StartsWith("model: option 'num_labels' means"));
  EXPECT_THAT(refusal("llama3-tiny", "image_size", 64),
              HasSubstr("option 'image_size' means nothing to model llama3-tiny (family decoder: "
                        "takes num_labels, vocab_size, "));
  EXPECT_THAT(refusal("linear-tiny", "checkpointing", "block"),
              HasSubstr("option 'checkpointing' means nothing to model linear-tiny (family linear: "
                        "takes model, task, "));
}

TEST(OptionSets, OptionsOfTheFamilyAndDefaultsPass) {
  EXPECT_EQ(refusal("llama3-tiny", "qkv_bias", "yes"), "no error");
  EXPECT_EQ(refusal("dit-tiny", "image_size", 64), "no error");
  EXPECT_EQ(refusal("dit-tiny", "qkv_bias", "auto"), "no error");
  EXPECT_EQ(refusal("linear-tiny", "seed", 7), "no error");
}

// Sweeps, checkpoints and scripts hand tables of effective options back.
TEST(OptionSets, ResolvedOptionsOfEveryPresetAreTakenAgain) {
  const OptionSchema& schema = models::model_schema();
  for (const models::Preset& preset : models::presets()) {
    ModelOptions o;
    o.model = preset.sizes.model;
    const ModelOptions resolved = models::resolve_model_options(o);
    const Json table = schema.to_json(&resolved);
    ModelOptions again;
    schema.assign_all(&again, table);
    const ModelOptions twice = models::resolve_model_options(again);
    EXPECT_EQ(schema.to_json(&twice), table) << o.model;
  }
}

}  // namespace
}  // namespace moonshard
