#include "runtime/models/blocks/param_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "runtime/core/check.h"
#include "runtime/core/interrupt.h"

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The layer outlives the graph (the model owns it), so the graph may hold its bare address.
void remember_layer(AutogradContext* context, ParamLayer* layer) {
  context->saved_data["layer"] = reinterpret_cast<int64_t>(layer);
}

ParamLayer& remembered_layer(AutogradContext* context) {
  return *reinterpret_cast<ParamLayer*>(context->saved_data["layer"].toInt());
}

void hand_over(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  throw_if_interrupted();
  if (layer.seam->consumer != nullptr && layer.trainable())
    layer.seam->consumer->consume(layer, a, g);
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            ParamLayer* layer) {
    remember_layer(context, layer);
    context->save_for_backward({x});
    return at::linear(x, layer->weight->value,
                      layer->bias != nullptr ? std::optional(layer->bias->value) : std::nullopt);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const at::Tensor g = gradients[0];
    const at::Tensor x = context->get_saved_variables()[0];
    at::Tensor x_gradient;
    if (context->needs_input_grad(0)) x_gradient = at::matmul(g, layer.weight->value);
    hand_over(layer, x, g);
    return {x_gradient, at::Tensor(), at::Tensor()};
  }
};

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor&,
                            ParamLayer* layer) {
    remember_layer(context, layer);
    context->save_for_backward({ids});
    return at::embedding(layer->weight->value, ids);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    hand_over(remembered_layer(context), context->get_saved_variables()[0], gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::ScalarType statistics_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

struct RmsNormFunction : Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            ParamLayer* layer, double eps) {
    remember_layer(context, layer);
    const at::Tensor wide = x.to(statistics_type(x.scalar_type()));
    const at::Tensor inverse_rms = at::rsqrt(wide.square().mean(-1, true) + eps);
    const at::Tensor normalised = (wide * inverse_rms).to(x.scalar_type());
    context->save_for_backward({normalised, inverse_rms});
    return normalised * layer->weight->value;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const auto saved = context->get_saved_variables();
    const at::Tensor &normalised = saved[0], &inverse_rms = saved[1];
    const at::Tensor g = gradients[0];
    at::Tensor x_gradient;
    if (context->needs_input_grad(0)) {
      const auto wide = inverse_rms.scalar_type();
      const at::Tensor scaled = (g * layer.weight->value).to(wide);
      const at::Tensor direction = normalised.to(wide);
      const at::Tensor along = (scaled * direction).mean(-1, true);
      x_gradient = (inverse_rms * (scaled - direction * along)).to(g.scalar_type());
    }
    hand_over(layer, normalised, g);
    return {x_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Frozen layers need no anchor: they stay in the graph only when their input does.
at::Tensor anchor_of(const ParamLayer& layer) {
  return layer.trainable() ? layer.seam->anchor : at::Tensor();
}

}  // namespace

at::Tensor linear(const at::Tensor& x, ParamLayer& layer) {
  const int64_t width = layer.weight->value.size(1);
  MS_CHECK(x.dim() >= 2 && x.size(-1) == width,
           "layer '{}': expected input [B, ..., {}], got {}; check the model's sizes", layer.name,
           width, c10::str(x.sizes()));
  return LinearFunction::apply(x, anchor_of(layer), &layer);
}

at::Tensor embedding(const at::Tensor& ids, ParamLayer& layer) {
  const int64_t rows = layer.weight->value.size(0);
  if (ids.is_cpu() &&
      ids.numel() > 0) {  // On a GPU the look-up itself checks, without a stall here.
    const int64_t smallest = ids.min().item<int64_t>(), largest = ids.max().item<int64_t>();
    MS_CHECK(smallest >= 0 && largest < rows,
             "layer '{}': expected ids from 0 to {}, got {} to {}; check vocab_size and the data",
             layer.name, rows - 1, smallest, largest);
  }
  return EmbeddingFunction::apply(ids, anchor_of(layer), &layer);
}

at::Tensor rms_norm(const at::Tensor& x, ParamLayer& layer, double eps) {
  return RmsNormFunction::apply(x, anchor_of(layer), &layer, eps);
}

}  // namespace moonshard::models
