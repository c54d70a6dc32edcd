// Generation on a GPU: the step of a token as a CUDA graph makes what it makes one kernel at a
// time, and what the full forward pass would. Skipped with a reason without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/nucleus/nucleus.h"
#include "runtime/generate/generate.h"
#include "runtime/models/registry.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::generate {
namespace {

class GenerateGpu : public OnGpu {};

std::unique_ptr<models::Model> stirred(const std::string& name, const std::string& dtype,
                                       const std::string& device) {
  models::ModelOptions options;
  options.model = name;
  options.task = "lm";
  options.device = device;
  options.dtype = dtype;
  if (name.starts_with("gemma")) options.attention_window = 6;
  auto model = models::make_model(options);
  for (const auto& parameter : model->parameters())
    if (parameter->value.dim() == 2)
      parameter->value.mul_(parameter->name.find("embed") != std::string::npos ? 5 : 12);
  return model;
}

const std::vector<Tokens> kPrompts{{5, 9, 3, 17, 11}, {4}, {21, 6, 40, 2, 7, 8, 9, 100, 33}};

GenerateOptions options_of(double temperature, const char* graph) {
  GenerateOptions options;
  options.temperature = temperature;
  options.top_p = 0.9;
  options.max_new_tokens = 50;
  options.graph = graph;
  return options;
}

TEST_F(GenerateGpu, AGraphMakesTheSameTokens) {
  for (const char* name : {"llama3-tiny", "llama3.2-tiny", "qwen2.5-tiny", "gemma2-tiny",
                           "gemma3-tiny", "vaultgemma-tiny"}) {
    for (const char* dtype : {"float32", "bfloat16"}) {
      const auto model = stirred(name, dtype, "cuda");
      for (const double temperature : {0.0, 1.0}) {
        const Generated graph = generate(*model, kPrompts, options_of(temperature, "auto"));
        const Generated eager = generate(*model, kPrompts, options_of(temperature, "no"));
        EXPECT_EQ(graph.graph, "yes") << name << " " << dtype;
        EXPECT_EQ(eager.graph, "graph = no");
        EXPECT_EQ(graph.tokens, eager.tokens) << name << " " << dtype << " " << temperature;
      }
    }
  }
}

// In float64: kernels of other shapes round at other places, and 64 bits leave no ties.
TEST_F(GenerateGpu, GreedyIsTheFullForwardsBest) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"llama3-tiny", "qwen2.5-tiny", "gemma2-tiny", "gemma3-tiny"}) {
    const auto model = stirred(name, "float64", "cuda");
    const Generated made = generate(*model, kPrompts, options_of(0, "auto"));
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      Tokens text = kPrompts[i];
      text.insert(text.end(), made.tokens[i].begin(), made.tokens[i].end());
      Batch batch;
      batch.input_ids = at::tensor(text, at::kLong).unsqueeze(0).to(at::kCUDA);
      const at::Tensor best = model->forward(batch)[0].argmax(-1).to(at::kCPU);
      for (size_t t = 0; t < made.tokens[i].size(); ++t)
        ASSERT_EQ(best[static_cast<int64_t>(kPrompts[i].size() + t) - 1].item<int64_t>(),
                  made.tokens[i][t])
            << name << " prompt " << i << " token " << t;
    }
  }
}

TEST_F(GenerateGpu, EndsEarlyAndServesSeveralBatchesByOneGraph) {
  const auto model = stirred("llama3-tiny", "float32", "cuda");
  GenerateOptions options = options_of(0, "auto");
  const Generated whole = generate(*model, kPrompts, options);
  options.batch_size = 2;
  EXPECT_EQ(generate(*model, kPrompts, options).tokens, whole.tokens);
  options.stop = {whole.tokens[0][7], whole.tokens[1][7], whole.tokens[2][7]};
  const Generated stopped = generate(*model, kPrompts, options);
  EXPECT_THAT(stopped.ended, testing::Each("stop"));
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    ASSERT_LE(stopped.tokens[i].size(), 7u);
    EXPECT_TRUE(
        std::equal(stopped.tokens[i].begin(), stopped.tokens[i].end(), whole.tokens[i].begin()));
  }
}

TEST_F(GenerateGpu, TheBorderOfANucleusIsTheReferences) {
  for (const int64_t width : {1, 7, 1000, 128256}) {
    for (const double sharpness : {0.0, 3.0}) {
      const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA);
      const at::Tensor parts =
          (at::softmax(at::randn({9, width}, options) * sharpness, -1) * (1 << 30)).to(at::kInt);
      for (const double share : {0.05, 0.9, 1.0})
        EXPECT_TRUE(at::equal(kernels::nucleus_border(parts, share),
                              kernels::nucleus_border_ref(parts, share)))
            << width << " " << share;
    }
  }
}

}  // namespace
}  // namespace moonshard::generate
