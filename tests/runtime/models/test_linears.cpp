// Several linear layers of one input against each by itself: outputs, the input's gradient, what is
// handed over and in which order; and that no sum of the input's gradient is a pass of its own.
#include <gtest/gtest.h>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <optional>

#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/registry.h"

namespace moonshard {
namespace {

struct HandedOver : models::GradientConsumer {
  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    layers.push_back(layer.name);
    values.push_back(at::matmul(g.flatten(0, -2).t(), a.flatten(0, -2)));
  }
  std::vector<std::string> layers;
  std::vector<at::Tensor> values;
};

struct Uses : models::ParameterKeeper {
  void before_forward(const models::ParamLayer&) override { ++open; }
  void after_forward(const models::ParamLayer&, bool is_in_graph) override {
    --open;
    in_graph.push_back(is_in_graph);
  }
  void before_backward(const models::ParamLayer&) override { ++open; }
  void after_backward(const models::ParamLayer&) override { --open; }
  void gradients_added(const models::ParamLayer&) override {}
  int open = 0;
  std::vector<bool> in_graph;
};

// aten::add and aten::add_ while it lives: autograd sums up with these.
class CountedSums {
 public:
  CountedSums()
      : handle_(at::addGlobalCallback(
            at::RecordFunctionCallback([](const at::RecordFunction& function)
                                           -> std::unique_ptr<at::ObserverContext> {
              const std::string_view name = function.name();
              if (name == "aten::add" || name == "aten::add_") ++count_;
              return nullptr;
            }).scopes({at::RecordScope::FUNCTION}))) {
    count_ = 0;
  }
  ~CountedSums() { at::removeCallback(handle_); }
  int count() const { return count_; }

 private:
  at::CallbackHandle handle_;
  static inline std::atomic<int> count_{0};
};

struct Trained {
  std::vector<at::Tensor> outputs;
  at::Tensor x_gradient;
  HandedOver handed;
  Uses uses;
  int num_sums = 0;
};

Trained trained_by(const models::ModelOptions& options, bool together, bool fused = true) {
  std::optional<models::FusedByReferences> as_on_a_gpu;
  if (fused) as_on_a_gpu.emplace();
  const auto model = models::make_model(options);
  at::manual_seed(3);
  std::vector<models::ParamLayer*> layers;
  for (const auto& layer : model->layers()) {
    layer->weight->value.add_(at::randn_like(layer->weight->value), 0.05);  // adapters start at 0
    for (const char* name :
         {"layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj", "layers.0.self_attn.v_proj"})
      if (layer->name.ends_with(name)) layers.push_back(layer.get());
  }
  EXPECT_EQ(layers.size(), 3u);
  Trained result;
  model->seam().consumer = &result.handed;
  model->seam().keeper = &result.uses;
  model->seam().words = at::arange(2, at::kLong);
  const at::Tensor x =
      at::randn({2, 5, model->options().hidden_dim}, at::kDouble).requires_grad_(true);
  if (together) {
    result.outputs = models::linears(x, layers);
  } else {
    for (models::ParamLayer* layer : layers) result.outputs.push_back(models::linear(x, *layer));
  }
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& output : result.outputs) sum = sum + output.square().sum();
  const CountedSums sums;
  result.x_gradient =
      torch::autograd::grad({sum}, {x, model->seam().anchor}, {}, false, false, true)[0];
  result.num_sums = sums.count();
  return result;
}

models::ModelOptions tiny() {
  models::ModelOptions options;
  options.model = "llama3.2-tiny";
  options.device = "cpu";
  options.dtype = "float64";
  return options;
}

void expect_the_same(const models::ModelOptions& options) {
  const Trained each = trained_by(options, false), all = trained_by(options, true);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(each.outputs[i], all.outputs[i])) << i;
  EXPECT_TRUE(at::allclose(each.x_gradient, all.x_gradient, 1e-12, 1e-12));
  EXPECT_EQ(each.handed.layers, all.handed.layers);
  ASSERT_EQ(each.handed.values.size(), all.handed.values.size());
  for (size_t i = 0; i < each.handed.values.size(); ++i)
    EXPECT_TRUE(at::allclose(each.handed.values[i], all.handed.values[i], 1e-12, 1e-12))
        << each.handed.layers[i];
  EXPECT_EQ(each.uses.in_graph, all.uses.in_graph);
  EXPECT_EQ(all.uses.open, 0);
  EXPECT_GT(each.num_sums, 0);
  // Dropout's masks are each adapter's own: its part is added by itself.
  EXPECT_TRUE(all.num_sums == 0 || options.lora_dropout > 0) << all.num_sums;
}

TEST(Linears, OfOneInputGiveWhatEachGives) {
  expect_the_same(tiny());
}

TEST(Linears, OnACpuHaveTheDigitsThatEachHas) {
  models::ModelOptions options = tiny();
  for (const int64_t rank : {0, 4}) {
    options.lora_rank = rank;
    const Trained each = trained_by(options, false, false), all = trained_by(options, true, false);
    EXPECT_TRUE(at::equal(each.x_gradient, all.x_gradient)) << rank;
  }
}

TEST(Linears, WithAdaptersToo) {
  models::ModelOptions options = tiny();
  options.lora_rank = 4;
  expect_the_same(options);
  options.lora_targets = "q_proj,v_proj";
  expect_the_same(options);
  options.lora_dropout = 0.5;
  expect_the_same(options);
}

TEST(Linears, FrozenOnesHandOverNothing) {
  models::ModelOptions options = tiny();
  options.frozen = "*k_proj*";
  expect_the_same(options);
  EXPECT_EQ(trained_by(options, true).handed.layers.size(), 2u);
  options.frozen = "*_proj*";
  expect_the_same(options);
  EXPECT_TRUE(trained_by(options, true).handed.layers.empty());
}

}  // namespace
}  // namespace moonshard
