// Engines with two passes take factors from the first and sums from the second: both must see the
// same output gradients, to the last bit. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/data/source.h"
#include "runtime/models/blocks/attention.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard {
namespace {

class SecondPassGpu : public OnGpu {};

// Gradients of q, k and v of two backward passes over one graph; how often one differs.
int differences(at::ScalarType type, int64_t tokens, models::AttentionKind kind) {
  const at::TensorOptions options = at::TensorOptions(at::kCUDA).dtype(type);
  std::vector<at::Tensor> inputs;
  for (const int64_t heads : {8, 8, 8})
    inputs.push_back(at::randn({2, heads, tokens, 64}, options).requires_grad_());
  const at::Tensor out = models::attention(inputs[0], inputs[1], inputs[2], true, kind);
  const at::Tensor seed = at::randn_like(out);
  const auto first = torch::autograd::grad({out}, inputs, {seed}, true);
  int count = 0;
  for (int again = 0; again < 10; ++again) {
    const auto second = torch::autograd::grad({out}, inputs, {seed}, true);
    for (size_t i = 0; i < first.size(); ++i) count += at::equal(first[i], second[i]) ? 0 : 1;
  }
  return count;
}

TEST_F(SecondPassGpu, AttentionOfADeterministicStepGivesTheSameBits) {
  const DeterminismGuard guard(true);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const int64_t tokens : {64, 512, 2048}) {
      for (const auto kind : {models::AttentionKind::Flash, models::AttentionKind::Standard}) {
        if (type == at::kDouble && tokens > 512) continue;
        EXPECT_EQ(differences(type, tokens, kind), 0) << c10::toString(type) << " " << tokens;
      }
    }
  }
}

// The same engine with what it kept of the one pass, and with two passes: the same sums.
TEST_F(SecondPassGpu, SumsWhatTheFirstPassMeasured) {
  const auto weights = [](const char* engine) {
    models::ModelOptions options;
    options.model = "llama3-tiny";
    options.task = "lm";
    options.device = "cuda";
    options.param_dtype = "bfloat16";
    options.num_heads = 4;
    options.hidden_dim = 256;
    options.seed = 1;
    const std::shared_ptr<models::Model> model = models::make_model(options);
    privacy::ClipOptions clip;
    clip.mode = engine;
    clip.noise_multiplier = 0;
    clip.max_grad_norm = 1e-3;
    optim::OptimizerOptions sgd;
    sgd.lr = 1;
    train::StepOptions step;
    step.deterministic = std::string(engine) == "bookkeeping";
    const Batch batch = data::SyntheticData(model->options(), 4, 1024).next();
    train::Trainer({.model = model, .clip = clip, .optimizer = sgd, .step = step}).step(batch);
    std::vector<at::Tensor> values;
    for (const auto& parameter : model->parameters()) values.push_back(parameter->value.clone());
    return values;
  };
  const std::vector<at::Tensor> one = weights("bookkeeping"), two = weights("ghost");
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_LT((one[i] - two[i]).abs().max().item<double>(), 1e-7) << i;
}

}  // namespace
}  // namespace moonshard
