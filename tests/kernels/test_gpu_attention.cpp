// Attention's kernels on a GPU: which one runs, windows, and outputs that a recomputed block keeps.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/core/device.h"
#include "runtime/models/blocks/attention.h"
#include "runtime/models/blocks/kept_attention.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard {
namespace {

class GpuAttention : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    at::manual_seed(7);
  }
};

TEST_F(GpuAttention, AttentionKernelsAgreeAndTheChoiceIsKept) {
  const auto heads = [](int64_t count) {
    return at::randn({2, 200, count, 64}, on_gpu(at::kBFloat16)).transpose(1, 2);
  };
  const at::Tensor q = heads(8), k = heads(2), v = heads(2);
  ASSERT_TRUE(models::attention_has_choice(q, k));
  const at::Tensor flash =
      models::run_attention(models::AttentionKernel::Flash, q, k, v, /*causal=*/true);
  const at::Tensor wide = at::scaled_dot_product_attention(
      q.to(at::kDouble), k.repeat_interleave(4, 1).to(at::kDouble),
      v.repeat_interleave(4, 1).to(at::kDouble), std::nullopt, 0.0, true);
  EXPECT_LT(difference(flash, wide.to(at::kBFloat16)), 1e-2);
  const models::AttentionKernel chosen = models::attention_kernel(q, k, true);
  EXPECT_EQ(models::attention_choices().at(models::attention_key(q, k, true)),
            models::attention_kernel_name(chosen));
  EXPECT_LT(difference(models::run_attention(chosen, q, k, v, true), wide.to(at::kBFloat16)), 1e-2);
  models::set_attention_choice(models::attention_key(q, k, true), models::AttentionKernel::Flash);
  EXPECT_EQ(models::attention_kernel(q, k, true), models::AttentionKernel::Flash);
}

// Output and gradients of q, k and v of causal attention over a window.
std::vector<at::Tensor> windowed(const std::vector<at::Tensor>& qkv, const at::Tensor& gradient,
                                 at::ScalarType type, models::AttentionKind kind, int64_t window) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& x : qkv) inputs.push_back(x.detach().to(type).requires_grad_(true));
  models::ScoreRules rules;
  rules.window = window;
  const at::Tensor out = models::causal_attention(inputs[0], inputs[1], inputs[2], kind, rules);
  std::vector<at::Tensor> results = torch::autograd::grad({out}, inputs, {gradient.to(type)});
  results.insert(results.begin(), out.detach());
  return results;
}

TEST_F(GpuAttention, AWindowNeedsNoMaskAndHasTheSameBitsInTwoPasses) {
  const at::AutoGradMode enable(true);
  for (const int64_t width : {64, 256}) {
    const auto heads = [&](int64_t count) {
      return at::randn({2, 200, count, width}, on_gpu(at::kBFloat16)).transpose(1, 2);
    };
    const std::vector<at::Tensor> qkv{heads(4), heads(2), heads(2)};
    const at::Tensor gradient = heads(4);
    ASSERT_TRUE(models::has_flash_kernel(qkv[0], width));
    for (const int64_t window : {2, 33, 150}) {
      const auto flash =
          windowed(qkv, gradient, at::kBFloat16, models::AttentionKind::Flash, window);
      const auto wide =
          windowed(qkv, gradient, at::kDouble, models::AttentionKind::Standard, window);
      for (size_t i = 0; i < flash.size(); ++i)
        EXPECT_LT(difference(flash[i].to(at::kDouble), wide[i]), 2e-2)
            << width << " " << window << " " << i;

      const DeterminismGuard in_order(true);
      const auto one = windowed(qkv, gradient, at::kBFloat16, models::AttentionKind::Flash, window);
      const auto two = windowed(qkv, gradient, at::kBFloat16, models::AttentionKind::Flash, window);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i]));
    }
  }
}

TEST_F(GpuAttention, AWindowThatIsKeptIsThatOfTheFirstRun) {
  const at::AutoGradMode enable(true);
  const auto heads = [](int64_t count) {
    return at::randn({2, 96, count, 256}, on_gpu(at::kBFloat16)).transpose(1, 2);
  };
  const std::vector<at::Tensor> qkv{heads(4), heads(2), heads(2)};
  const at::Tensor gradient = heads(4);
  for (const int64_t window : {0, 40}) {
    const DeterminismGuard in_order(true);
    const auto run = [&] {
      return windowed(qkv, gradient, at::kBFloat16, models::AttentionKind::Flash, window);
    };
    const auto want = run();
    models::KeptAttention kept;
    {
      const at::NoGradGuard no_grad;
      const models::KeptAttention::Scope scope(kept, /*records=*/true);
      models::ScoreRules rules;
      rules.window = window;
      models::causal_attention(qkv[0], qkv[1], qkv[2], models::AttentionKind::Flash, rules);
    }
    const models::KeptAttention::Scope scope(kept, /*records=*/false);
    const auto got = run();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << window;
  }
}

}  // namespace
}  // namespace moonshard
