// What engines do on a GPU (layers of a block in one launch, gradients kept in 16 bits, rows handed
// on to the update) against what they do layer by layer, by the operations' references: norms,
// factors and weights after a step are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <map>
#include <set>

#include <torch/csrc/autograd/autograd.h>

#include "runtime/base/check.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/faults.h"
#include "runtime/verify/verify.h"

namespace moonshard {
namespace {

struct Way {
  std::string engine = "auto", clipping = "flat", wrapper = "none", world = "auto";
  std::string compute = "float32", frozen, checkpointing = "none", flash = "auto";
  int64_t grad_accum = 1, budget_mb = 0, tokens = 40;
  bool layers = false, fused = false, bad_sample = false;
  bool wide = false;  ///< decoders: gradients are larger than what they are made of

  std::string text() const {
    return fmt::format(
        "{} {} wrapper {} {} {} accum {} budget {} tokens {} frozen '{}' checkpointing {} flash "
        "{}{}{}{}",
        engine, clipping, wrapper, world, compute, grad_accum, budget_mb, tokens, frozen,
        checkpointing, flash, layers ? " layers" : "", fused ? " fused" : "",
        bad_sample ? " bad sample" : "");
  }
};

struct Subject {
  const char *name, *model, *task;
};
void PrintTo(const Subject& subject, std::ostream* out) {
  *out << subject.model << " " << subject.task;
}

struct Outcome {
  train::StepReport report;
  std::map<std::string, at::Tensor> layer_norms, layer_factors;
  std::map<std::string, at::Tensor> moved;  ///< by the step: the gradient that was used
};

std::shared_ptr<models::Model> make(const Subject& subject, const Way& way) {
  models::ModelOptions options;
  options.model = subject.model;
  options.task = subject.task;
  options.device = "cpu";
  options.dtype = "float32";
  options.param_dtype = way.compute;
  options.checkpointing = way.checkpointing;
  options.seed = 5;
  // Widths that have whole units, so that gradients are kept in 16 bits, and one that has not.
  options.hidden_dim = 128;
  options.intermediate_dim = way.wide ? 512 : 48;
  if (std::string(subject.task) == "denoise") {
    options.image_size = 16;
  } else {
    options.vocab_size = 40;
    options.head_dim = 8;
  }
  // A classifier's last block has less to keep: two others.
  if (way.wide && std::string(subject.task) == "classify") options.num_layers = 3;
  options.frozen = way.frozen;
  const std::shared_ptr<models::Model> model = models::make_model(options);
  // Off zero: what starts at zero hides what it multiplies.
  at::manual_seed(3);
  for (const auto& parameter : model->parameters())
    parameter->value.add_(at::randn_like(parameter->value), 0.05);
  return model;
}

// The middle of the norms would do; what matters is that some are above and some below.
constexpr double kBound = 1.5;

Outcome outcome_of(const Subject& subject, const Way& way) {
  std::optional<models::FusedByReferences> fused;
  if (way.fused) fused.emplace();
  const auto model = make(subject, way);
  std::map<std::string, at::Tensor> before;
  for (const auto& parameter : model->parameters())
    before[parameter->name] = parameter->value.to(at::kDouble);
  Batch batch = data::SyntheticData(model->options(), 6, way.tokens).next();
  if (way.bad_sample) {
    batch.targets = batch.targets.clone();
    batch.targets[1].fill_(std::nan(""));
    batch.targets[4].fill_(3e38);  // the loss is infinite
  }
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.clipping = way.clipping;
  clip.noise_multiplier = 0;
  clip.quantile_noise = 0.001;
  clip.max_grad_norm = way.clipping == "per_layer" ? 4 * kBound : kBound;
  if (way.clipping == "groups") {
    clip.clip_groups = "*.0.* = 0.8";
    for (const auto& parameter : model->parameters())  // apart from its weight
      if (parameter->name.ends_with(".1.self_attn.q_proj.bias") ||
          parameter->name.ends_with(".1.mlp.fc1.bias"))
        clip.clip_groups += "; " + parameter->name + " = 0.1";
  }
  clip.memory_budget_mb = way.budget_mb;
  clip.flash_algorithm = way.flash;
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  train::StepOptions step;
  step.grad_accum = way.grad_accum;
  sharding::ShardingOptions sharding;
  sharding.parallel = way.wrapper == "none" || way.wrapper == "ddp" ? way.wrapper : "fsdp";
  if (sharding.parallel == "fsdp") sharding.sharding = way.wrapper;
  sharding.world = way.world;
  sharding.link = "instant";
  train::Trainer trainer({.model = model,
                          .clip = clip,
                          .optimizer = sgd,
                          .step = step,
                          .sharding = sharding,
                          .privacy = privacy::reproducible_noise()});
  trainer.record_layers(way.layers);
  Outcome outcome;
  outcome.report = trainer.step(batch);
  std::map<std::string, std::vector<at::Tensor>> norms, factors;
  for (const privacy::LayerNorms& layer : outcome.report.layers) {
    norms[layer.layer].push_back(layer.norms);
    if (layer.factors.defined()) factors[layer.layer].push_back(layer.factors);
  }
  for (const auto& [name, parts] : norms) outcome.layer_norms[name] = at::cat(parts);
  for (const auto& [name, parts] : factors) outcome.layer_factors[name] = at::cat(parts);
  trainer.gather();
  for (const auto& parameter : model->parameters())
    outcome.moved[parameter->name] = before[parameter->name] - parameter->value.to(at::kDouble);
  return outcome;
}

at::Tensor doubles(const std::vector<double>& list) {
  return at::tensor(list, at::kDouble);
}

// Numbers that are not finite must be so in both.
double difference(const at::Tensor& got, const at::Tensor& want) {
  if (!at::equal(got.isfinite(), want.isfinite())) return INFINITY;
  const at::Tensor finite = want.isfinite();
  const at::Tensor x = got.where(finite, 0).to(at::kDouble),
                   y = want.where(finite, 0).to(at::kDouble);
  return (x - y).norm().item<double>() / (y.norm().item<double>() + 1e-12);
}

void expect_same(const Outcome& got, const Outcome& want, double tolerance) {
  EXPECT_EQ(got.report.norms.size(), want.report.norms.size());
  EXPECT_LT(difference(doubles(got.report.norms), doubles(want.report.norms)), tolerance);
  EXPECT_EQ(got.report.factors.size(), want.report.factors.size());
  EXPECT_LT(difference(doubles(got.report.factors), doubles(want.report.factors)), tolerance);
  EXPECT_EQ(got.report.dropped, want.report.dropped);
  ASSERT_EQ(got.layer_norms.size(), want.layer_norms.size());
  for (const auto& [name, norms] : want.layer_norms) {
    ASSERT_TRUE(got.layer_norms.contains(name)) << name;
    EXPECT_LT(difference(got.layer_norms.at(name), norms), tolerance) << name;
  }
  ASSERT_EQ(got.layer_factors.size(), want.layer_factors.size());
  for (const auto& [name, factors] : want.layer_factors)
    EXPECT_LT(difference(got.layer_factors.at(name), factors), tolerance) << name;
  for (const auto& [name, moved] : want.moved) {
    EXPECT_TRUE(got.moved.at(name).isfinite().all().item<bool>()) << name;
    // Weights are float32 numbers of some 0.1: their last digit is part of what they moved by.
    const double rounding = 2e-8 * std::sqrt(static_cast<double>(moved.numel()));
    EXPECT_LT((got.moved.at(name) - moved).norm().item<double>(),
              tolerance * moved.norm().item<double>() + rounding)
        << name;
  }
}

// Kept in float16, an element has 11 bits.
double tolerance_of(const Way& way) {
  const bool keeps_rows =
      way.engine == "auto" || (way.engine == "flash_bookkeeping" && way.flash == "auto");
  return keeps_rows ? 1e-3 : 1e-5;
}

void compare(const Subject& subject, const Way& way) {
  SCOPED_TRACE(std::string(subject.name) + " " + way.text());
  const Outcome want = outcome_of(subject, way);
  const privacy::JoinedByReferences joined;
  expect_same(outcome_of(subject, way), want, tolerance_of(way));
}

struct Named {
  const char* engine;
  int64_t budget_mb;
};
const Named kEngines[] = {{"none", 0},        {"materialize", 0},       {"ghost", 0}, {"flash", 0},
                          {"bookkeeping", 0}, {"flash_bookkeeping", 0}, {"auto", 0},  {"auto", 1}};

class JoinedLayers : public ::testing::TestWithParam<Subject> {};

INSTANTIATE_TEST_SUITE_P(All, JoinedLayers,
                         ::testing::Values(Subject{"llama_classify", "llama3-tiny", "classify"},
                                           Subject{"llama_lm", "llama3-tiny", "lm"},
                                           Subject{"llama_tied", "llama3.2-tiny", "lm"},
                                           Subject{"qwen_biases", "qwen1.5-tiny", "lm"},
                                           Subject{"qwen_tied", "qwen2.5-tiny", "classify"},
                                           Subject{"dit", "dit-tiny", "denoise"}),
                         [](const auto& test) { return test.param.name; });

TEST_P(JoinedLayers, GiveWhatEachGivesByItself) {
  for (const auto& [engine, budget] : kEngines) {
    for (const char* clipping : {"flat", "per_layer", "automatic", "adaptive", "groups"}) {
      if (std::string(engine) == "none" && std::string(clipping) != "flat") continue;
      for (const bool layers : {false, true}) {
        // Norms of layers are not what groups are clipped by; they are compared above.
        if (std::string(clipping) == "groups" && layers) continue;
        Way way;
        way.engine = engine;
        way.clipping = clipping;
        way.budget_mb = budget;
        way.layers = layers;
        way.fused = layers;
        way.compute = layers ? "bfloat16" : "float32";
        compare(GetParam(), way);
      }
    }
  }
}

TEST_P(JoinedLayers, GiveTheSameUnderEveryWrapperAndOverMicroBatches) {
  const std::pair<const char*, const char*> wrappers[] = {
      {"none", "auto"}, {"ddp", "auto"}, {"zero3", "auto"}, {"ddp", "fake:2"}, {"zero3", "fake:2"}};
  for (const auto& [wrapper, world] : wrappers) {
    for (const auto& [engine, budget] : kEngines) {
      for (const int64_t accum : {1, 2, 3}) {
        Way way;
        way.engine = engine;
        way.clipping = accum == 3 && std::string(engine) != "none" ? "per_layer" : "flat";
        way.budget_mb = budget;
        way.wrapper = wrapper;
        way.world = world;
        way.grad_accum = accum;
        way.fused = accum == 2;
        way.checkpointing = accum == 2 ? "block" : "none";
        way.tokens = 24;
        compare(GetParam(), way);
      }
    }
  }
}

TEST_P(JoinedLayers, LeaveOutWhatIsFrozen) {
  const bool dit = std::string(GetParam().task) == "denoise";
  std::vector<std::string> lists =
      dit ? std::vector<std::string>{"*.bias", "*.attn.*.weight,*.mlp.*.weight", "blocks.0.*"}
          : std::vector<std::string>{"*.q_proj.weight,*.k_proj.weight,*.v_proj.weight",
                                     "*.layers.0.*", "model.embed_tokens.weight"};
  if (!dit && std::string(GetParam().model).starts_with("qwen")) lists.push_back("*.bias");
  for (const std::string& frozen : lists) {
    for (const auto& [engine, budget] : kEngines) {
      Way way;
      way.engine = engine;
      way.budget_mb = budget;
      way.frozen = frozen;
      way.tokens = 24;
      compare(GetParam(), way);
    }
  }
}

// From nothing kept over a mixture to all that is faster.
TEST_P(JoinedLayers, KeepWhatTheBudgetAllows) {
  int64_t before = -1, changes = 0;
  for (const int64_t budget : {1, 3, 4, 5, 6, 9}) {
    Way way;
    way.budget_mb = budget;
    way.tokens = 64;
    way.wide = true;
    way.compute = "bfloat16";
    SCOPED_TRACE(way.text());
    const Outcome want = outcome_of(GetParam(), way);
    const privacy::JoinedByReferences joined;
    const Outcome got = outcome_of(GetParam(), way);
    expect_same(got, want, tolerance_of(way));
    changes += got.report.kept_bytes != before;
    before = got.report.kept_bytes;
  }
  if (std::string(GetParam().task) != "denoise") {
    EXPECT_GT(changes, 2);
  }
}

// An algorithm that is asked for by name joins as well; tiles of positions are the ghost kernel's.
TEST_P(JoinedLayers, FindNormsByTheAlgorithmThatIsAskedFor) {
  for (const char* engine : {"flash", "flash_bookkeeping", "auto"}) {
    for (const char* algorithm : {"input_length", "width"}) {
      for (const char* clipping : {"flat", "per_layer"}) {
        for (const int64_t accum : {1, 2}) {
          Way way;
          way.engine = engine;
          way.clipping = clipping;
          way.flash = algorithm;
          way.grad_accum = accum;
          way.wrapper = accum == 1 ? "none" : "zero3";
          compare(GetParam(), way);
        }
      }
    }
  }
}

// Beyond some length gradients are smaller than what they are made of.
TEST(JoinedLayer, OfLongSamplesKeepsNoMoreThanItsGradients) {
  const Subject llama{"llama", "llama3-tiny", "lm"};
  const privacy::JoinedByReferences joined;
  const auto kept = [&](const char* engine, int64_t tokens, const char* algorithm = "auto") {
    Way way;
    way.engine = engine;
    way.tokens = tokens;
    way.wide = true;
    way.flash = algorithm;
    return static_cast<double>(outcome_of(llama, way).report.kept_bytes);
  };
  EXPECT_GT(kept("bookkeeping", 160) / kept("bookkeeping", 80), 1.9);
  // What is left to grow is the embedding's output gradient.
  EXPECT_LT(kept("flash_bookkeeping", 160) / kept("flash_bookkeeping", 80), 1.25);
  EXPECT_LT(kept("flash_bookkeeping", 160), kept("bookkeeping", 160) / 2);
  EXPECT_EQ(kept("flash_bookkeeping", 4), kept("bookkeeping", 4)) << "short samples: (a, g)";
  EXPECT_EQ(kept("flash_bookkeeping", 160, "width"), kept("bookkeeping", 160));
}

TEST(JoinedLayer, OfADroppedSampleTakesNoPart) {
  const Subject dit{"dit", "dit-tiny", "denoise"};
  for (const auto& [engine, budget] : kEngines) {
    if (std::string(engine) == "none") continue;
    for (const char* clipping : {"flat", "per_layer"}) {
      for (const int64_t accum : {1, 2}) {
        Way way;
        way.engine = engine;
        way.clipping = clipping;
        way.budget_mb = budget;
        way.compute = accum == 1 ? "float32" : "bfloat16";
        way.grad_accum = accum;
        way.bad_sample = true;
        compare(dit, way);
      }
    }
  }
}

// A test that joins nothing proves nothing: the margins of joined norms are others, and what is
// kept in 16 bits is half as large.
TEST(JoinedLayer, IsReallyJoined) {
  const Subject llama{"llama", "llama3-tiny", "lm"};
  Way way;
  way.engine = "flash_bookkeeping";
  const Outcome flash = outcome_of(llama, way);
  way.engine = "auto";
  const Outcome kept = outcome_of(llama, way);
  const privacy::JoinedByReferences joined;
  EXPECT_LT(outcome_of(llama, way).report.kept_bytes, kept.report.kept_bytes);
  way.engine = "flash_bookkeeping";
  EXPECT_NE(outcome_of(llama, way).report.norms, flash.report.norms);
  // By name, tiles of positions are what the ghost kernel computes, to the last bit.
  way.engine = "flash";
  way.flash = "input_length";
  const Outcome tiles = outcome_of(llama, way);
  way.engine = "ghost";
  EXPECT_EQ(outcome_of(llama, way).report.norms, tiles.report.norms);
}

// A rank without samples keeps pace with one that counts for nothing.
TEST(JoinedLayer, OfAStandInAddsNothing) {
  const privacy::JoinedByReferences joined;
  for (const auto& [engine, budget] : kEngines) {
    if (std::string(engine) == "none") continue;
    for (const char* clipping : {"flat", "per_layer", "automatic"}) {
      SCOPED_TRACE(fmt::format("{} {} budget {}", engine, clipping, budget));
      privacy::ClipOptions clip;
      clip.mode = engine;
      clip.clipping = clipping;
      clip.memory_budget_mb = budget;
      const auto model = make({"qwen", "qwen1.5-tiny", "lm"}, {});
      const Batch batch = data::SyntheticData(model->options(), 1, 24).next();
      const auto own = privacy::make_engine(clip, std::make_shared<privacy::Clipping>(clip));
      own->begin(*model, {1, 24, 0, false, 300, 40, at::zeros({1})});
      model->seam().consumer = own.get();
      // Not times 0, as a trainer has it: that nothing is added must not hang on it.
      const at::Tensor total = model->losses(batch).sum();
      const auto backward = [&] {
        torch::autograd::grad({total}, {model->seam().anchor}, {}, true, false, true);
      };
      backward();
      profile::PhaseTimer timer(c10::kCPU);
      own->clip(timer);
      if (own->needs_second_pass()) {
        backward();
        own->end_second_pass();
      }
      model->seam().consumer = nullptr;
      for (const auto& parameter : model->parameters()) {
        sharding::settle_rows(*parameter);
        ASSERT_TRUE(parameter->grad.defined()) << parameter->name;
        EXPECT_EQ(parameter->grad.abs().max().item<double>(), 0) << parameter->name;
        EXPECT_EQ(parameter->grad.sizes(), parameter->value.sizes()) << parameter->name;
      }
    }
  }
}

// Two layers on one weight in one block, each with a bias of its own: a model of somebody else's.
class TwinModel : public models::Model {
 public:
  explicit TwinModel(bool shares_bias = false) : Model(twin_options()) {
    begin_block();
    first_ = &add_linear("first", 16, 16, true, 0.2);
    twin_ = &add_tied_linear("twin", *first_);
    other_ = &add_linear("other", 16, 16, true, 0.2);
    end_block();
    twin_->bias = shares_bias ? first_->bias : &add_parameter("twin.bias", {16}, 0.1, 0);
  }
  at::Tensor forward(const Batch& batch) override {
    const at::Tensor x_BTD = batch.inputs.reshape({-1, 4, 16});
    const at::Tensor y_BTD = models::linear(at::tanh(models::linear(x_BTD, *first_)), *twin_);
    return models::linear(at::tanh(y_BTD), *other_).flatten(1);
  }
  at::Tensor losses(const Batch& batch) override {
    return models::regression_losses(forward(batch), batch.targets);
  }

 private:
  static models::ModelOptions twin_options() {
    models::ModelOptions o;
    o.model = "twin";
    o.task = "regress";
    o.dtype = o.param_dtype = "float32";
    o.device = "cpu";
    o.hidden_dim = 64;
    return o;
  }
  models::ParamLayer *first_, *twin_, *other_;
};

std::pair<std::vector<double>, std::vector<at::Tensor>> twin_step(const privacy::ClipOptions& clip,
                                                                  int64_t accum) {
  const auto model = std::make_shared<TwinModel>();
  at::manual_seed(7);
  for (const auto& parameter : model->parameters())
    parameter->value.copy_(at::randn_like(parameter->value) * 0.3);
  const Batch batch = data::SyntheticData(model->options(), 6, 1).next();
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  train::StepOptions step;
  step.grad_accum = accum;
  const auto report = train::Trainer({.model = model,
                                      .clip = clip,
                                      .optimizer = sgd,
                                      .step = step,
                                      .privacy = privacy::reproducible_noise()})
                          .step(batch);
  std::vector<at::Tensor> values;
  for (const auto& parameter : model->parameters()) values.push_back(parameter->value.clone());
  return {report.norms, values};
}

TEST(JoinedLayer, OfASharedWeightCountsOnce) {
  for (const auto& [engine, budget] : kEngines) {
    for (const char* clipping : {"flat", "per_layer"}) {
      for (const int64_t accum : {1, 2}) {
        SCOPED_TRACE(fmt::format("{} {} accum {}", engine, clipping, accum));
        privacy::ClipOptions clip;
        clip.mode = engine;
        clip.clipping = clipping;
        clip.noise_multiplier = 0;
        clip.max_grad_norm = 0.5;
        const auto want = twin_step(clip, accum);
        const privacy::JoinedByReferences joined;
        const auto got = twin_step(clip, accum);
        const double tolerance = std::string(engine) == "auto" ? 1e-3 : 1e-5;
        EXPECT_LT(difference(doubles(got.first), doubles(want.first)), tolerance);
        for (size_t i = 0; i < want.second.size(); ++i)
          EXPECT_LT(difference(got.second[i], want.second[i]), tolerance) << i;
      }
    }
  }
}

TEST(JoinedLayer, WithABiasOfAnotherIsRefused) {
  privacy::ClipOptions clip;
  clip.mode = "flash";
  const auto model = std::make_shared<TwinModel>(/*shares_bias=*/true);
  const Batch batch = data::SyntheticData(model->options(), 2, 1).next();
  train::Trainer trainer({model, clip, {}, nullptr});
  EXPECT_THAT([&] { trainer.step(batch); },
              ::testing::ThrowsMessage<UsageError>(
                  ::testing::HasSubstr("layer 'twin': expected a bias of its own, got "
                                       "'first.bias', which another layer uses")));
}

// Norms from a function of the user's, sums by the runtime: biases are part of them.
TEST(JoinedLayer, OfAnEngineFromOutsideIsSummedWhole) {
  for (const privacy::Keep keep : {privacy::Keep::Inputs, privacy::Keep::Nothing}) {
    const auto norms = [](const models::ParamLayer& layer, const at::Tensor& a,
                          const at::Tensor& g) { return privacy::squared_norms(layer, a, g, {}); };
    privacy::register_engine({.name = "outside"}, [&](const privacy::ClipOptions&,
                                                      std::shared_ptr<privacy::Clipping> clipping) {
      return privacy::make_custom_engine("outside", norms, keep, std::move(clipping));
    });
    Way way;
    way.engine = "outside";
    compare({"qwen", "qwen1.5-tiny", "lm"}, way);
    way.clipping = "per_layer";
    compare({"qwen", "qwen1.5-tiny", "lm"}, way);
    privacy::unregister_engine("outside");
  }
}

// An engine that met an error in the middle of a block forgets what it had joined.
TEST(JoinedLayer, OfABrokenStepIsForgotten) {
  class Breaks : public models::GradientConsumer {
   public:
    explicit Breaks(privacy::ClipEngine& engine) : engine_(engine) {}
    void consume(const models::ParamLayer& layer, const at::Tensor& a,
                 const at::Tensor& g) override {
      MS_CHECK(!layer.name.ends_with("layers.0.mlp.up_proj"), "enough");
      engine_.consume(layer, a, g);
    }

   private:
    privacy::ClipEngine& engine_;
  };
  const privacy::JoinedByReferences joined;
  const Subject llama{"llama", "llama3-tiny", "lm"};
  for (const char* mode : {"flash", "flash_bookkeeping", "auto"}) {
    SCOPED_TRACE(mode);
    privacy::ClipOptions clip;
    clip.mode = mode;
    std::vector<at::Tensor> norms;
    for (const bool broken_before : {false, true}) {
      const auto model = make(llama, {});
      const Batch batch = data::SyntheticData(model->options(), 3, 24).next();
      const auto engine = privacy::make_engine(clip, std::make_shared<privacy::Clipping>(clip));
      const auto pass = [&](models::GradientConsumer& consumer) {
        engine->begin(*model, {3, 24});
        model->seam().consumer = &consumer;
        const at::Tensor total = model->losses(batch).sum();
        torch::autograd::grad({total}, {model->seam().anchor}, {}, true, false, true);
      };
      Breaks breaks(*engine);
      if (broken_before) {
        EXPECT_THROW(pass(breaks), std::exception);
      }
      pass(*engine);
      profile::PhaseTimer timer(c10::kCPU);
      norms.push_back(engine->clip(timer).norms);
      model->seam().consumer = nullptr;
    }
    EXPECT_TRUE(at::equal(norms[0], norms[1]));
  }
}

// ---- verification, with layers that join -------------------------------------------------------

std::set<std::string> failed_engines(const char* model, const char* options,
                                     std::shared_ptr<privacy::StepHooks> hooks = nullptr) {
  verify::VerifyOptions wanted;
  wanted.hooks = std::move(hooks);
  wanted.model = model;
  wanted.options = options;
  wanted.dtype = "bfloat16";
  wanted.device = "cpu";
  std::set<std::string> names;
  for (const verify::Cell& cell : verify::verify(wanted))
    if (!cell.ok) names.insert(cell.engine);
  return names;
}

TEST(JoinedLayer, IsVerified) {
  const privacy::JoinedByReferences joined;
  const std::pair<const char*, const char*> cases[] = {
      {"llama3-tiny", "padding"},      {"llama3.2-tiny", "checkpointing"},
      {"qwen1.5-tiny", "per_layer"},   {"qwen1.5-tiny", "accumulation"},
      {"qwen2.5-tiny", "per_layer"},   {"qwen2.5-tiny", "default"},
      {"qwen1.5-tiny", "groups"},      {"dit-tiny", "groups"},
      {"llama3-tiny", "lora+dropout"}, {"llama3.2-tiny", "groups"},
      {"dit-tiny", "default"},         {"dit-tiny", "per_layer"},
      {"dit-xl-tiny", "affine_norms"}, {"dit-xl-tiny", "checkpointing"}};
  for (const auto& [model, options] : cases)
    EXPECT_EQ(failed_engines(model, options), std::set<std::string>()) << model << " " << options;
}

TEST(JoinedLayer, DoesNotHideMistakes) {
  const privacy::JoinedByReferences joined;
  const std::set<std::string> engines = {"materialize",       "ghost", "flash", "bookkeeping",
                                         "flash_bookkeeping", "auto"};
  const auto expect_found = [&](verify::Fault fault, const char* model, const char* options) {
    const std::set<std::string> failed = failed_engines(model, options, verify::make_fault(fault));
    EXPECT_THAT(failed, ::testing::IsSupersetOf(engines)) << model << " " << options;
  };
  expect_found(verify::Fault::NoBiasTerm, "qwen1.5-tiny", "default");
  expect_found(verify::Fault::NoBiasTerm, "dit-tiny", "per_layer");
  expect_found(verify::Fault::NoCrossTerm, "qwen2.5-tiny", "default");
  expect_found(verify::Fault::NoPaddingRule, "llama3-tiny", "padding");
  expect_found(verify::Fault::MicroStepNorm, "llama3-tiny", "accumulation");
  expect_found(verify::Fault::WrongDenominator, "llama3-tiny", "default");
}

}  // namespace
}  // namespace moonshard
