#include "runtime/models/families/linear/linear.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "runtime/core/device.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/config_object.h"
#include "runtime/models/family.h"
#include "runtime/models/model_cost.h"

namespace moonshard::models {
namespace {

// The family of stacks of Linear layers: presets, batches, cost and config.json.

Preset linear_preset(const char* name, int64_t width, int64_t layers, int64_t batch,
                     const char* doc) {
  ModelOptions o;
  o.model = name;
  o.task = "regress";
  o.hidden_dim = width;
  o.num_layers = layers;
  return {o, batch, 1, doc, true, nullptr};
}

class LinearFamily : public Family {
 public:
  LinearFamily() : Family(description_of<LinearEntry>()) {}

  std::vector<Preset> presets() const override {
    return {linear_preset("linear", 16384, 8, 8192,
                          "8 x Linear(16384, 16384), the FSDP tutorial's model"),
            linear_preset("linear-tiny", 256, 4, 64, "4 x Linear(256, 256), for a CPU")};
  }
  std::unique_ptr<Model> build(const ModelOptions& o) const override {
    return std::make_unique<LinearStack>(o);
  }

  /// Vectors have no tokens, but sweeps may name a seq_length, which stays in the record.
  int64_t tokens_per_sample(const ModelOptions&, int64_t) const override { return 1; }
  Batch synthetic_batch(const ModelOptions& o, int64_t batch_size, int64_t,
                        BatchDraws& draws) const override {
    Batch batch;
    std::tie(batch.inputs, batch.targets) =
        draws.two_normals({batch_size, o.hidden_dim}, dtype_from_name(o.dtype));
    return batch;
  }
  int64_t batch_bytes(const ModelOptions& o, int64_t batch_size, int64_t) const override {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype_from_name(o.dtype)));
    return 2 * batch_size * o.hidden_dim * size;
  }

  double flops_per_token(const ModelOptions& o, int64_t) const override {
    const double D = static_cast<double>(o.hidden_dim), L = static_cast<double>(o.num_layers);
    return 6 * L * D * D;
  }
  // A layer keeps its input; the loss keeps the difference in w and its backward adds four of that
  // size: the square's gradient, in and out, and the difference once and twice.
  ActivationBytes activation_bytes(const ModelOptions& o, const CostDtypes& f,
                                   int64_t) const override {
    ActivationBytes a;
    a.block = a.block_input = f.s * o.hidden_dim;
    a.block_working = 2 * f.s * o.hidden_dim;
    a.outside = f.w * o.hidden_dim;
    a.head_working = 4 * f.w * o.hidden_dim;
    a.batch = 2 * f.s * o.hidden_dim;
    return a;
  }

  std::vector<std::string> config_types() const override { return {"linear"}; }
  ModelOptions read_config(const ConfigObject& config) const override {
    ModelOptions o;
    o.model = "linear";
    o.task = "regress";
    o.hidden_dim = config.integer("hidden_size", 1, 1'000'000);
    o.num_layers = config.integer("num_hidden_layers", 1, 10'000);
    return o;
  }
  Json write_config(const ModelOptions& o) const override {
    return {{"model_type", "linear"},
            {"hidden_size", o.hidden_dim},
            {"num_hidden_layers", o.num_layers}};
  }

  void shrink(ModelOptions& o) const override { o.hidden_dim = 19; }
  std::string frozen_example() const override { return "layers.0.weight,layers.1.bias"; }
};

}  // namespace

LinearStack::LinearStack(const ModelOptions& options) : Model(options) {
  const int64_t width = options_.hidden_dim;
  for (int64_t i = 0; i < options_.num_layers; ++i) {
    begin_block();
    // 1/sqrt(width) keeps the activations' size from layer to layer.
    stack_.push_back(&add_linear(fmt::format("layers.{}", i), width, width, true,
                                 1.0 / std::sqrt(static_cast<double>(width))));
    end_block();
  }
}

at::Tensor LinearStack::forward(const Batch& batch) {
  at::Tensor x_BD = batch.inputs;
  for (ParamLayer* layer : stack_) x_BD = linear(x_BD.to(layer->compute_type()), *layer);
  return x_BD;
}

at::Tensor LinearStack::losses(const Batch& batch) {
  return regression_losses(forward(batch), batch.targets);
}

std::unique_ptr<Family> LinearEntry::make() {
  return std::make_unique<LinearFamily>();
}

}  // namespace moonshard::models
