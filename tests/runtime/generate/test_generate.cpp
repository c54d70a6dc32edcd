// Generation against the full forward pass: a KV cache must change nothing. And
// what is drawn must come from the model's distribution, whoever else is in the batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/generate/generate.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/causal_lm.h"
#include "runtime/models/registry.h"
#include "runtime/weights/adapters.h"
#include "runtime/weights/load_model.h"

namespace moonshard::generate {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kDecoders[] = {"llama3-tiny",  "llama3.1-tiny",  "llama3.2-tiny",
                                     "qwen1.5-tiny", "qwen2.5-tiny",   "gemma2-tiny",
                                     "gemma3-tiny",  "vaultgemma-tiny"};

models::ModelOptions options_of(const std::string& name, const std::string& dtype) {
  models::ModelOptions options;
  options.model = name;
  options.task = "lm";
  options.device = "cpu";
  options.dtype = dtype;
  if (name.starts_with("gemma")) options.attention_window = 6;  // shorter than the texts
  return options;
}

// Weights of a start are so small that a model hardly looks at its text; these are not.
void stir(models::Model& model) {
  for (const auto& parameter : model.parameters()) {
    at::Tensor& value = parameter->value;
    if (value.dim() == 2) value.mul_(parameter->name.find("embed") != std::string::npos ? 5 : 12);
    if (parameter->name.ends_with(".bias")) value.fill_(0.1);
    if (parameter->name.ends_with(".lora_B.weight"))
      value.copy_(at::arange(value.numel(), value.options()).view(value.sizes()).sin() * 0.3);
  }
}

std::unique_ptr<models::Model> stirred(const models::ModelOptions& options) {
  auto model = models::make_model(options);
  stir(*model);
  return model;
}

// Prompts of different lengths.
std::vector<Tokens> prompts_of(const models::Model& model, int64_t count) {
  std::vector<Tokens> prompts;
  for (int64_t i = 0; i < count; ++i) {
    Tokens prompt;
    for (int64_t t = 0; t < 3 + (i * 5) % 11; ++t)
      prompt.push_back((i * 37 + t * t * 11 + 5) % model.options().vocab_size);
    prompts.push_back(prompt);
  }
  return prompts;
}

GenerateOptions greedy(int64_t tokens) {
  GenerateOptions options;
  options.temperature = 0;
  options.max_new_tokens = tokens;
  return options;
}

// What the full forward pass puts behind each token of a text: [T, V].
at::Tensor forward_scores(models::Model& model, const Tokens& text) {
  const at::NoGradGuard no_grad;
  Batch batch;
  batch.input_ids = at::tensor(text, at::kLong).unsqueeze(0);
  return model.forward(batch)[0];
}

// How many tokens are not the most probable ones of the full forward pass.
int64_t disagreements(models::Model& model, const std::vector<Tokens>& prompts,
                      const Generated& made) {
  int64_t count = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Tokens text = prompts[i];
    text.insert(text.end(), made.tokens[i].begin(), made.tokens[i].end());
    const at::Tensor best = forward_scores(model, text).argmax(-1);
    for (size_t t = 0; t < made.tokens[i].size(); ++t)
      count += best[static_cast<int64_t>(prompts[i].size() + t) - 1].item<int64_t>() !=
               made.tokens[i][t];
  }
  return count;
}

TEST(Generate, GreedyIsTheFullForwardsBestForTenThousandTokens) {
  int64_t tokens = 0;
  for (const std::string name : kDecoders) {
    models::ModelOptions options = options_of(name, "float32");
    options.attention = tokens % 2 == 0 ? "flash" : "standard";
    const auto model = stirred(options);
    const auto prompts = prompts_of(*model, 15);
    const Generated made = generate(*model, prompts, greedy(85));
    EXPECT_EQ(disagreements(*model, prompts, made), 0) << name;
    tokens += made.new_tokens;
    EXPECT_THAT(made.ended, testing::Each("length"));
    std::set<int64_t> different;
    for (const Tokens& row : made.tokens) different.insert(row.begin(), row.end());
    EXPECT_GE(different.size(), 20u) << name << " says something";
  }
  EXPECT_GE(tokens, 10'000);
}

// Scores of every step beside the full forward's, in the plain and in the fused form.
TEST(Generate, ScoresAreThoseOfTheFullForward) {
  const at::NoGradGuard no_grad;
  for (const char* name : kDecoders) {
    for (const bool fused : {false, true}) {
      std::optional<models::FusedByReferences> form;
      if (fused) form.emplace();
      const auto model = stirred(options_of(name, "float64"));
      auto& reader = dynamic_cast<models::CausalLm&>(*model);
      const auto prompts = prompts_of(*model, 3);
      models::KvCache cache = reader.make_cache(3, 40);
      at::Tensor ids = at::zeros({3, 16}, at::kLong), counts = at::zeros({3}, at::kLong);
      for (int64_t b = 0; b < 3; ++b) {
        const Tokens& prompt = prompts[static_cast<size_t>(b)];
        counts[b] = static_cast<int64_t>(prompt.size());
        ids[b].narrow(0, 0, counts[b].item<int64_t>()).copy_(at::tensor(prompt, at::kLong));
      }
      std::vector<Tokens> texts = prompts;
      at::Tensor scores = reader.prefill(ids, counts, cache);
      for (int step = 0; step < 6; ++step) {
        at::Tensor next = at::zeros({3}, at::kLong);
        for (int64_t b = 0; b < 3; ++b) {
          Tokens& text = texts[static_cast<size_t>(b)];
          const at::Tensor want = forward_scores(*model, text)[-1];
          EXPECT_LE((scores[b] - want).abs().max().item<double>(),
                    1e-10 * want.abs().max().item<double>())
              << name << " fused " << fused << " step " << step << " row " << b;
          next[b] = (step * 7 + b * 13 + 1) % model->options().vocab_size;
          text.push_back(next[b].item<int64_t>());
        }
        scores = reader.decode(next, cache);
      }
    }
  }
}

TEST(Generate, IsTransformersGreedyText) {
  const auto golden = std::filesystem::path(MOONSHARD_SOURCE_DIR) / "tests" / "golden";
  std::ifstream file(golden / "generated.json");
  const Json cases = Json::parse(file);
  EXPECT_EQ(cases.size(), 6u);
  for (const auto& [name, rows] : cases.items()) {
    models::ModelOptions options = weights::options_from_config(golden / name);
    options.dtype = "float32";
    options.device = "cpu";
    const auto model = weights::load_model(options, golden / name);
    std::vector<Tokens> prompts, wanted;
    for (const Json& row : rows) {
      prompts.push_back(row.at("prompt").get<Tokens>());
      wanted.push_back(row.at("tokens").get<Tokens>());
    }
    EXPECT_EQ(generate(*model, prompts, greedy(24)).tokens, wanted) << name;
  }
}

TEST(Generate, ARowDoesNotDependOnTheOthers) {
  for (const char* name : {"llama3-tiny", "qwen2.5-tiny", "gemma3-tiny"}) {
    const auto model = stirred(options_of(name, "float64"));
    const auto prompts = prompts_of(*model, 6);
    GenerateOptions options;
    options.max_new_tokens = 20;
    options.temperature = 3;
    options.top_p = 0.95;
    options.seed = 7;
    const Generated together = generate(*model, prompts, options);
    options.batch_size = 1;
    EXPECT_EQ(generate(*model, prompts, options).tokens, together.tokens) << name;
    options.batch_size = 4;  // the second batch is not full
    std::vector<Tokens> others = prompts_of(*model, 9);
    std::copy(prompts.begin(), prompts.begin() + 3, others.begin());
    const Generated changed = generate(*model, others, options);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(changed.tokens[i], together.tokens[i]) << name;
    options.seed = 8;
    EXPECT_NE(generate(*model, prompts, options).tokens, together.tokens) << name;
  }
}

TEST(Generate, AdaptersCountAndAreTheSameWhenMerged) {
  models::ModelOptions options = options_of("llama3-tiny", "float64");
  const auto bare = stirred(options);
  options.lora_rank = 4;
  const auto model = stirred(options);
  const auto prompts = prompts_of(*model, 5);
  const Generated made = generate(*model, prompts, greedy(30));
  EXPECT_EQ(disagreements(*model, prompts, made), 0);
  EXPECT_NE(generate(*bare, prompts, greedy(30)).tokens, made.tokens);
  const auto merged = weights::merged_model(*model);
  EXPECT_EQ(generate(*merged, prompts, greedy(30)).tokens, made.tokens);
}

TEST(Generate, EndsAtAStopTokenWhichIsNotPartOfTheText) {
  const auto model = stirred(options_of("llama3-tiny", "float32"));
  const auto prompts = prompts_of(*model, 4);
  const Generated whole = generate(*model, prompts, greedy(40));
  GenerateOptions options = greedy(40);
  options.stop = {whole.tokens[1][9], whole.tokens[2][3]};
  std::vector<Tokens> heard(prompts.size());
  const Generated made = generate(*model, prompts, options, [&](size_t prompt, int64_t token) {
    heard[prompt].push_back(token);
  });
  int64_t drawn = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Tokens& all = whole.tokens[i];
    const auto end =
        std::find_first_of(all.begin(), all.end(), options.stop.begin(), options.stop.end());
    EXPECT_EQ(made.tokens[i], Tokens(all.begin(), end));
    EXPECT_EQ(made.ended[i], end == all.end() ? "length" : "stop");
    drawn += end - all.begin() + (end == all.end() ? 0 : 1);
  }
  EXPECT_EQ(made.ended[1], "stop");
  EXPECT_EQ(made.new_tokens, drawn);
  EXPECT_EQ(heard, made.tokens);
}

TEST(Generate, HoldsWeightsInTheComputeDtypeAndGivesThemBack) {
  models::ModelOptions options = options_of("llama3-tiny", "float32");
  options.param_dtype = "bfloat16";
  const auto model = stirred(options);
  std::vector<const void*> places;
  for (const auto& parameter : model->parameters())
    places.push_back(parameter->value.const_data_ptr());
  const auto prompts = prompts_of(*model, 3);
  const Generated made = generate(*model, prompts, greedy(20));
  for (size_t i = 0; i < places.size(); ++i)
    EXPECT_EQ(model->parameters()[i]->value.const_data_ptr(), places[i]);
  options.param_dtype = "auto";
  options.dtype = "bfloat16";
  const auto narrow = models::make_model(options);
  for (size_t i = 0; i < places.size(); ++i)
    narrow->parameters()[i]->value.copy_(model->parameters()[i]->value);
  EXPECT_EQ(generate(*narrow, prompts, greedy(20)).tokens, made.tokens);
}

TEST(Generate, SaysWhatIsWrong) {
  const auto model = models::make_model(options_of("llama3.1-tiny", "float32"));
  const auto message = [&](const std::vector<Tokens>& prompts, const GenerateOptions& options,
                           const std::string& text) {
    EXPECT_THAT([&] { generate(*model, prompts, options); },
                ThrowsMessage<UsageError>(HasSubstr(text)));
  };
  GenerateOptions options = greedy(5);
  message({}, options, "expected at least one prompt, got none");
  message({{1}, {}}, options, "prompt 2: expected at least one token, got none");
  message({{1, 1'000'000}}, options, "prompt 1: expected ids from 0 to");
  options.stop = {-1};
  message({{1}}, options, "option 'stop': expected ids from 0 to");
  options.stop = {};
  options.top_p = 0;
  message({{1}}, options, "option 'top_p': expected above 0 and up to 1, got 0");
  options.top_p = 1;
  options.temperature = 1e-9;
  message({{1}}, options, "option 'temperature': expected 0");
  options = greedy(1'000'000);
  message({{1}}, options,
          "the positions of model 'llama3.1-tiny', got 1 and max_new_tokens = 1000000");
  model->parameters()[0]->value.fill_(std::numeric_limits<float>::quiet_NaN());
  message({{1}}, greedy(3), "expected finite scores of tokens");

  models::ModelOptions other = options_of("llama3-tiny", "float32");
  other.task = "classify";
  EXPECT_THAT([&] { generate(*models::make_model(other), {{1}}, greedy(3)); },
              ThrowsMessage<UsageError>(HasSubstr("got 'llama3-tiny' with task classify")));
  models::ModelOptions images;
  images.model = "dit-tiny";
  images.device = "cpu";
  EXPECT_THAT([&] { generate(*models::make_model(images), {{1}}, greedy(3)); },
              ThrowsMessage<UsageError>(HasSubstr("expected a model of text with task lm, got "
                                                  "'dit-tiny' with task denoise")));
}

}  // namespace
}  // namespace moonshard::generate
