// The fused elementwise kernels against their references, and the models that use them, on a GPU.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/common/choice.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/gated/gated.h"
#include "kernels/gelu/gelu.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rotary/rotary.h"
#include "runtime/data/source.h"
#include "runtime/models/registry.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard {
namespace {

class GpuFused : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    at::manual_seed(7);
  }
};

double tolerance_of(at::ScalarType type) {
  return type == at::kBFloat16 ? 4e-3 : 2e-6;
}

constexpr at::ScalarType kFormats[] = {at::kFloat, at::kBFloat16};

TEST_F(GpuFused, ActivationsEqualTheirReferences) {
  for (const auto type : kFormats) {
    for (const int64_t width : {96, 101}) {
      const at::Tensor a = at::randn({3, 17, width}, on_gpu(type)) * 3, b = at::randn_like(a),
                       g = at::randn_like(a);
      ASSERT_TRUE(kernels::gated_kernel_runs(a));
      for (const auto gate : {kernels::GateFunction::Silu, kernels::GateFunction::GeluTanh}) {
        const at::Tensor product = kernels::gated_forward(a, b, gate);
        EXPECT_LT(difference(product, kernels::gated_forward_ref(a, b, gate)), tolerance_of(type));
        const auto got = kernels::gated_backward(g, a, b, gate),
                   want = kernels::gated_backward_ref(g, a, b, gate);
        EXPECT_LT(difference(got.gate, want.gate), tolerance_of(type));
        EXPECT_LT(difference(got.up, want.up), tolerance_of(type));
        EXPECT_FALSE(got.product.defined());
        const at::Tensor mine[] = {g.clone(), a.clone(), b.clone()};
        const auto in_place =
            kernels::gated_backward(mine[0], mine[1], mine[2], gate, {true, true, true});
        EXPECT_EQ(in_place.up.data_ptr(), mine[0].data_ptr());
        EXPECT_EQ(in_place.gate.data_ptr(), mine[1].data_ptr());
        EXPECT_EQ(in_place.product.data_ptr(), mine[2].data_ptr());
        EXPECT_TRUE(at::equal(in_place.up, got.up));
        EXPECT_TRUE(at::equal(in_place.gate, got.gate));
        EXPECT_TRUE(at::equal(in_place.product, product));
      }
      EXPECT_LT(difference(kernels::gelu_forward(a), kernels::gelu_forward_ref(a)),
                tolerance_of(type));
      EXPECT_LT(difference(kernels::gelu_backward(g, a), kernels::gelu_backward_ref(g, a)),
                tolerance_of(type));
    }
  }
}

TEST_F(GpuFused, RmsNormEqualsItsReference) {
  for (const auto type : kFormats) {
    for (const int64_t width : {64, 100, 4096, 8192}) {
      for (const bool with_delta : {false, true}) {
        const at::Tensor x = at::randn({3, 19, width}, on_gpu(type)), dn = at::randn_like(x),
                         dy = with_delta ? at::randn_like(x) : at::Tensor(),
                         delta = with_delta ? at::randn_like(x) : at::Tensor(),
                         weight = at::randn({width}, on_gpu(at::kFloat)) + 1;
        ASSERT_TRUE(kernels::rms_norm_kernel_runs(x));
        const auto got = kernels::add_rms_norm(x, delta, weight, 1e-5),
                   want = kernels::add_rms_norm_ref(x, delta, weight, 1e-5);
        EXPECT_TRUE(at::equal(got.y, want.y));
        EXPECT_LT(difference(got.n, want.n), tolerance_of(type));
        EXPECT_LT(difference(got.inverse_spread, want.inverse_spread), 2e-6);
        const kernels::RmsNormWants wants{true, true, true};
        const auto back = kernels::rms_norm_backward(dn, dy, want.y, want.inverse_spread, weight,
                                                     wants),
                   back_ref = kernels::rms_norm_backward_ref(dn, dy, want.y, want.inverse_spread,
                                                             weight, wants);
        EXPECT_LT(difference(back.input, back_ref.input), tolerance_of(type));
        EXPECT_LT(difference(back.weight_rows, back_ref.weight_rows), 1e-5);
        EXPECT_LT(difference(back.normalised, back_ref.normalised), tolerance_of(type));
        const auto again =
            kernels::rms_norm_backward(dn, dy, want.y, want.inverse_spread, weight, wants);
        EXPECT_TRUE(at::equal(again.weight_rows, back.weight_rows));  // deterministic
      }
    }
  }
}

TEST_F(GpuFused, LayerNormEqualsItsReference) {
  for (const auto type : kFormats) {
    for (const int64_t width : {64, 100, 1152}) {
      for (const bool full : {false, true}) {
        const at::Tensor x = at::randn({3, 19, width}, on_gpu(type)) + 1, out = at::randn_like(x),
                         dy = full ? at::randn_like(x) : at::Tensor();
        kernels::NormSurroundings around;
        around.weight = at::randn({width}, on_gpu(at::kFloat)) + 1;
        around.bias = at::randn({width}, on_gpu(at::kFloat));
        if (full) {
          const auto m = at::randn({3, 3 * width}, on_gpu(type)).chunk(3, -1);
          around.branch = at::randn_like(x);
          around.gate = m[0];
          around.scale = m[1];
          around.shift = m[2];
        }
        ASSERT_TRUE(kernels::layer_norm_kernel_runs(x));
        const auto got = kernels::layer_norm_forward(x, around, 1e-6),
                   want = kernels::layer_norm_forward_ref(x, around, 1e-6);
        EXPECT_LT(difference(got.y, want.y), tolerance_of(type));
        EXPECT_LT(difference(got.result, want.result), 2 * tolerance_of(type));
        const kernels::LayerNormWants wants{true, true};
        const auto back = kernels::layer_norm_backward(out, dy, want, around, wants),
                   back_ref = kernels::layer_norm_backward_ref(out, dy, want, around, wants);
        EXPECT_LT(difference(back.x, back_ref.x), tolerance_of(type));
        EXPECT_LT(difference(back.weight_rows, back_ref.weight_rows), 1e-5);
        EXPECT_LT(difference(back.bias_rows, back_ref.bias_rows), 1e-5);
        EXPECT_LT(difference(back.n, back_ref.n), tolerance_of(type));
        if (!full) continue;
        EXPECT_LT(difference(back.branch, back_ref.branch), tolerance_of(type));
        EXPECT_LT(difference(back.gate, back_ref.gate), tolerance_of(type));
        EXPECT_LT(difference(back.scale, back_ref.scale), tolerance_of(type));
        EXPECT_LT(difference(back.shift, back_ref.shift), tolerance_of(type));
      }
    }
  }
}

TEST_F(GpuFused, RotaryTurnsThereAndBack) {
  for (const auto type : kFormats) {
    for (const int64_t half : {6, 64}) {
      const at::Tensor angle = at::rand({17, half}, on_gpu(at::kFloat)) * 6;
      const at::Tensor q = at::randn({2, 17, 4 * 2 * half}, on_gpu(type)),
                       k = at::randn({2, 17, 2 * 2 * half}, on_gpu(type));
      at::Tensor got_q = q.clone(), got_k = k.clone(), want_q = q.clone(), want_k = k.clone();
      ASSERT_TRUE(kernels::rotary_kernel_runs(q));
      kernels::rotate_in_place(got_q, got_k, angle.cos(), angle.sin(), false);
      kernels::rotate_in_place_ref(want_q, want_k, angle.cos(), angle.sin(), false);
      EXPECT_LT(difference(got_q, want_q), tolerance_of(type));
      EXPECT_LT(difference(got_k, want_k), tolerance_of(type));
      kernels::rotate_in_place(got_q, got_k, angle.cos(), angle.sin(), true);
      EXPECT_LT(difference(got_q, q), 2 * tolerance_of(type));
      EXPECT_LT(difference(got_k, k), 2 * tolerance_of(type));
    }
  }
}

TEST_F(GpuFused, CrossEntropyEqualsItsReference) {
  for (const auto type : kFormats) {
    for (const int64_t width : {100, 1024, 32000}) {
      const at::Tensor scores = at::randn({13, width}, on_gpu(type)) * 4,
                       labels = at::randint(0, width, {13}, on_gpu(at::kLong)),
                       factors = at::rand({13}, on_gpu(at::kFloat));
      labels[5] = kernels::kIgnoredLabel;
      ASSERT_TRUE(kernels::cross_entropy_kernel_runs(scores));
      for (const double cap : {0.0, 5.0}) {
        const auto got = kernels::cross_entropy_forward(scores, labels, cap),
                   want = kernels::cross_entropy_forward_ref(scores, labels, cap);
        EXPECT_LT(difference(got.losses, want.losses), 2e-6);
        const at::Tensor gradient =
            kernels::cross_entropy_backward_ref(scores, labels, want.log_sums, factors, cap);
        for (const bool overwrite : {false, true}) {
          at::Tensor mine = scores.clone();
          EXPECT_LT(difference(kernels::cross_entropy_backward(mine, labels, want.log_sums, factors,
                                                               overwrite, cap),
                               gradient),
                    tolerance_of(type));
        }
      }
    }
  }
}

// Sums what the seam is handed, in double, into one number per layer.
class Fingerprints : public models::GradientConsumer {
 public:
  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    at::Tensor value = g.to(at::kDouble).square().sum();
    if (a.defined()) value = value + a.to(at::kDouble).square().sum();
    found[layer.name] = value.item<double>();
  }
  std::map<std::string, double> found;
};

TEST_F(GpuFused, ModelsGiveWhatTheirPlainFormsGive) {
  for (const char* name : {"llama3.2-tiny", "qwen2.5-tiny", "dit-tiny", "dit-xl-tiny"}) {
    for (const auto& [dtype, tolerance] :
         std::vector<std::pair<std::string, double>>{{"float32", 1e-4}, {"bfloat16", 0.1}}) {
      models::ModelOptions options;
      options.model = name;
      options.dtype = dtype;
      options.device = "cuda";
      options.seed = 5;
      const auto run = [&] {
        const auto model = models::make_model(options);
        at::manual_seed(3);
        for (const auto& parameter : model->parameters())
          parameter->value.add_(at::randn_like(parameter->value), 0.05);
        const Batch batch = data::SyntheticData(model->options(), 3, 24).next();
        Fingerprints fingerprints;
        model->seam().consumer = &fingerprints;
        const at::Tensor losses = model->losses(batch);
        torch::autograd::grad({losses.sum()}, {model->seam().anchor}, {}, false, false, true);
        fingerprints.found["losses"] = losses.sum().item<double>();
        return fingerprints.found;
      };
      const auto got = run();
      const kernels::ReferenceOnly plain;
      const auto want = run();
      ASSERT_EQ(got.size(), want.size());
      for (const auto& [layer, value] : want)
        EXPECT_NEAR(got.at(layer), value, tolerance * std::abs(value) + 1e-12)
            << name << " " << dtype << " " << layer;
    }
  }
}

}  // namespace
}  // namespace moonshard
