// Verification holds for right engines and sees every deliberate mistake.
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/check.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/faults.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {
namespace {

std::vector<Cell> run(const char* model, const char* options, const char* engine = "",
                      std::shared_ptr<privacy::StepHooks> hooks = nullptr) {
  VerifyOptions wanted;
  wanted.hooks = std::move(hooks);
  wanted.model = model;
  wanted.options = options;
  wanted.engine = engine;
  wanted.dtype = "float64";
  wanted.device = "cpu";
  return verify(wanted);
}

std::set<std::string> failed_engines(const std::vector<Cell>& cells) {
  std::set<std::string> names;
  for (const Cell& cell : cells)
    if (!cell.ok) names.insert(cell.engine);
  return names;
}

const std::set<std::string> kPrivate = {"materialize",       "ghost", "flash", "bookkeeping",
                                        "flash_bookkeeping", "auto"};

struct Mutation {
  const char* name;
  Fault fault;
  const char* model;
  const char* options;
  const char* layer;  ///< where it must show
  std::set<std::string> engines;
};

class Mutations : public ::testing::TestWithParam<Mutation> {};

TEST_P(Mutations, AreFoundInEveryEngineThatTheyBreak) {
  const Mutation& mutation = GetParam();
  EXPECT_EQ(failed_engines(run(mutation.model, mutation.options)), std::set<std::string>());
  const std::vector<Cell> cells =
      run(mutation.model, mutation.options, "", make_fault(mutation.fault));
  EXPECT_EQ(failed_engines(cells), mutation.engines);
  bool in_layer = false;
  for (const Cell& cell : cells) in_layer = in_layer || (!cell.ok && cell.layer == mutation.layer);
  EXPECT_TRUE(in_layer) << "not seen in layer " << mutation.layer;
}

std::set<std::string> with_none() {
  std::set<std::string> all = kPrivate;
  all.insert("none");
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    All, Mutations,
    ::testing::Values(
        Mutation{"BiasTerm", Fault::NoBiasTerm, "qwen1.5-tiny", "default", "linear_bias", kPrivate},
        Mutation{"BiasTermOf2dInput", Fault::NoBiasTerm, "linear-tiny", "default", "linear_2d_bias",
                 kPrivate},
        Mutation{"BiasTermPerLayer", Fault::NoBiasTerm, "dit-tiny", "per_layer", "adaln_linear",
                 kPrivate},
        Mutation{"CrossTerm", Fault::NoCrossTerm, "qwen2.5-tiny", "default", "tied_embedding",
                 kPrivate},
        Mutation{"PaddingRule", Fault::NoPaddingRule, "llama3-tiny", "padding", "embedding",
                 with_none()},
        Mutation{"PaddingRuleOfTiedWeights", Fault::NoPaddingRule, "llama3.2-tiny", "padding",
                 "tied_embedding", with_none()},
        Mutation{"MicroStepNorm", Fault::MicroStepNorm, "linear-tiny", "accumulation", "all",
                 kPrivate},
        Mutation{"Denominator", Fault::WrongDenominator, "linear-tiny", "default", "linear_2d_bias",
                 with_none()},
        Mutation{"ShortNorm", Fault::ShortNorm, "linear-tiny", "default", "all", kPrivate},
        Mutation{"NoiseOfAnEmptyDraw", Fault::SkippedEmptyStep, "linear-tiny", "poisson",
                 "linear_2d_bias", kPrivate},
        Mutation{"DenominatorOfADraw", Fault::RealisedDenominator, "linear-tiny", "poisson",
                 "linear_2d_bias", kPrivate},
        Mutation{"ExpectedBatch", Fault::RealisedDenominator, "linear-tiny", "expected_batch",
                 "linear_2d_bias", kPrivate},
        Mutation{"LessSecretNoise", Fault::NoiseOverSqrt2, "linear-tiny", "secret",
                 "linear_2d_bias", kPrivate},
        Mutation{"LessCountNoise", Fault::NoiseOverSqrt2, "linear-tiny", "secret+adaptive", "all",
                 kPrivate},
        Mutation{"LessNoisePerLayer", Fault::ClippingPerLayer, "linear-tiny", "noise+per_layer",
                 "linear_2d_bias", kPrivate},
        Mutation{"LessNoiseOfGroups", Fault::ClippingPerLayer, "linear-tiny", "noise+groups",
                 "linear_2d_bias", kPrivate},
        Mutation{"BiasTermOfGroups", Fault::NoBiasTerm, "qwen1.5-tiny", "groups", "linear_bias",
                 kPrivate},
        Mutation{"DenominatorOfPaddedDraws", Fault::RealisedDenominator, "linear-tiny",
                 "poisson+padded", "linear_2d_bias", kPrivate},
        Mutation{"UnclippedMicroBatch", Fault::MicroStepNorm, "linear-tiny", "noise+accumulation",
                 "all", kPrivate},
        Mutation{"NoiseTwiceInAdam", Fault::ReusedNoise, "linear-tiny", "adam", "linear_2d_bias",
                 kPrivate},
        Mutation{"NoiseTwiceInAdamW", Fault::ReusedNoise, "linear-tiny", "adamw", "linear_2d_bias",
                 kPrivate}),
    [](const auto& test) { return test.param.name; });

// The layerwise reference of 16 bits takes activations and output gradients from the model; this
// one has its own and still tells a norm that is 5 % too small.
TEST(Verify, FindsAShortNormIn16BitsByAPassOfItsOwn) {
  for (const char* model : {"linear-tiny", "llama3.2-tiny", "dit-tiny"}) {
    VerifyOptions options;
    options.model = model;
    options.options = "own_pass";
    options.device = "cpu";
    EXPECT_EQ(failed_engines(verify(options)), std::set<std::string>()) << model;
    options.hooks = make_fault(Fault::ShortNorm);
    EXPECT_EQ(failed_engines(verify(options)), kPrivate) << model;
  }
}

TEST(Verify, RefusesUnknownNamesWithTheNearest) {
  VerifyOptions options;
  options.engine = "gost";
  try {
    verify(options);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'ghost'?"), std::string::npos)
        << error.what();
  }
  options.engine = "";
  options.options = "acumulation";
  EXPECT_THROW(verify(options), UsageError);
  options.options = "";
  options.dtype = "float8";
  EXPECT_THROW(verify(options), UsageError);
}

TEST(Verify, UnderstandsTheSeedsNamesOfEngines) {
  const std::vector<Cell> cells = run("linear-tiny", "default", "flash_clip_bookkeeping");
  ASSERT_FALSE(cells.empty());
  EXPECT_EQ(cells[0].engine, "flash_bookkeeping");
}

TEST(Verify, WritesItsCellsAsJson) {
  const Json json = to_json(run("linear-tiny", "default", "ghost"));
  EXPECT_EQ(json["failed"], 0);
  for (const auto& cell : json["cells"]) {
    for (const char* key : {"engine", "model", "layer", "options", "dtype", "max_rel_err", "ok"})
      EXPECT_TRUE(cell.contains(key)) << key;
    EXPECT_EQ(cell["ok"], true);
    EXPECT_LT(cell["max_rel_err"].get<double>(), 1e-10);
  }
}

// The support table says what verify runs, and verify clips a fair share of the samples.
TEST(Verify, CoversEveryLayerKindOfTheSupportTable) {
  std::set<std::string> layers;
  for (const Support& row : support_table())
    for (const std::string& layer : row.layers) layers.insert(layer);
  for (const char* kind : {"linear", "linear_bias", "linear_2d", "linear_2d_bias", "embedding",
                           "tied_embedding", "rms_norm", "layer_norm", "patch_embedding",
                           "position_table", "adaln_linear", "label_embedding"})
    EXPECT_TRUE(layers.contains(kind)) << kind;
}

TEST(Verify, ClipsBetweenATenthAndNineTenthsOfTheSamples) {
  VerifyOptions options;
  options.model = "llama3-tiny";
  options.options = "default";
  options.dtype = "float64";
  options.engine = "ghost";
  options.device = "cpu";
  Observer observer;
  int shown = 0;
  observer.norms = [&](const NormsShown& norms) {
    ++shown;
    int clipped = 0;
    for (size_t b = 0; b < norms.before.size(); ++b)
      clipped += norms.after[b] < norms.before[b] * 0.9999;
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, static_cast<int>(norms.before.size()));
  };
  verify(options, observer);
  EXPECT_EQ(shown, 2) << "classify and lm";
}

}  // namespace
}  // namespace moonshard::verify
