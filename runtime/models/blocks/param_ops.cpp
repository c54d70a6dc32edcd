#include "runtime/models/blocks/param_ops.h"

#include <atomic>
#include <exception>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/core/device.h"
#include "runtime/models/blocks/layer_function.h"

namespace moonshard::models {
namespace {

std::atomic<bool> fused_everywhere{false};

using namespace layer_function;

// A patch embedding's [D, C, p, p] as the matrix [D, C p p] that it is.
at::Tensor matrix_of(const ParamLayer& layer, at::ScalarType type) {
  const profile::OwnerScope cast(profile::Owner::CastParameters);
  return layer.weight->value.flatten(1).to(type);
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            ParamLayer* layer) {
    remember_layer(context, layer);
    // A frozen layer's input is of no use in backward.
    context->save_for_backward({layer->trainable() ? x : at::Tensor()});
    const auto type = x.scalar_type();
    return at::linear(x, matrix_of(*layer, type), bias_of(*layer, type));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer);
    const at::Tensor g = gradients[0];
    const at::Tensor x = context->get_saved_variables()[0];
    at::Tensor x_gradient;
    if (context->needs_input_grad(0)) x_gradient = at::matmul(g, matrix_of(layer, g.scalar_type()));
    hand_over(layer, x, g);
    return {x_gradient, at::Tensor(), at::Tensor()};
  }
};

// One function for the layer and its adapter: the sum is formed in the output's own memory, and so
// is that of the input's gradient. Who consumes it sees down(x) and up(scale * down(x)).
struct AdaptedLinearFunction : Function<AdaptedLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            ParamLayer* layer) {
    remember_layer(context, layer);
    const auto type = x.scalar_type();
    const at::Tensor inner = at::linear(x, matrix_of(*layer->lora_down, type)) * layer->lora_scale;
    at::Tensor y = at::linear(x, matrix_of(*layer, type), bias_of(*layer, type));
    add_product(y, inner, matrix_of(*layer->lora_up, type).t());
    context->save_for_backward({x, inner});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer), use_down(*layer.lora_down), use_up(*layer.lora_up);
    const at::Tensor g = gradients[0];
    const auto type = g.scalar_type();
    const auto saved = context->get_saved_variables();
    hand_over(*layer.lora_up, saved[1], g);
    const at::Tensor inner_gradient =
        at::matmul(g, matrix_of(*layer.lora_up, type)) * layer.lora_scale;
    at::Tensor x_gradient;
    if (context->needs_input_grad(0)) {
      x_gradient = at::matmul(g, matrix_of(layer, type));
      add_product(x_gradient, inner_gradient, matrix_of(*layer.lora_down, type));
    }
    hand_over(*layer.lora_down, saved[0], inner_gradient);
    hand_over(layer, saved[0], g);
    return {x_gradient, at::Tensor(), at::Tensor()};
  }

 private:
  // sum [.., n] += left [.., k] right [k, n]
  static void add_product(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
    sum.view({-1, sum.size(-1)}).addmm_(left.reshape({-1, left.size(-1)}), right);
  }
};

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& ids, const at::Tensor&,
                            ParamLayer* layer) {
    remember_layer(context, layer);
    context->save_for_backward({ids});
    return at::embedding(layer->weight->value, ids).to(layer->seam->compute_type);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const BackwardUse use(remembered_layer(context));
    hand_over(remembered_layer(context), context->get_saved_variables()[0], gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct PositionsFunction : Function<PositionsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            ParamLayer* layer) {
    remember_layer(context, layer);
    return x + layer->weight->value.to(x.scalar_type());
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const BackwardUse use(remembered_layer(context));
    hand_over(remembered_layer(context), at::Tensor(), gradients[0]);
    return {context->needs_input_grad(0) ? gradients[0] : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// ---- plain autograd: the same layers by LibTorch's own operations ------------------------------

at::Tensor plain_linear(const at::Tensor& x, const ParamLayer& layer) {
  const auto type = x.scalar_type(), wide = statistics_type(type);
  const at::Tensor weight = rounded(*layer.weight, type).flatten(1).to(wide);
  at::Tensor y = at::matmul(x.to(wide), weight.t());
  if (layer.bias != nullptr) y = y + rounded(*layer.bias, type).to(wide);
  if (layer.lora_up == nullptr) return y.to(type);
  const at::Tensor inner = plain_linear(x, *layer.lora_down).to(wide) * layer.lora_scale;
  return (y + plain_linear(inner.to(type), *layer.lora_up).to(wide)).to(type);
}

}  // namespace

bool takes_fused_form(bool kernel_runs) {
  return kernel_runs || fused_everywhere.load(std::memory_order_relaxed);
}

FusedByReferences::FusedByReferences() : before_(fused_everywhere.exchange(true)) {}

FusedByReferences::~FusedByReferences() {
  fused_everywhere.store(before_);
}

void before_forward(const ParamLayer& layer) {
  if (layer.seam->keeper != nullptr) layer.seam->keeper->before_forward(layer);
}

void after_forward(const ParamLayer& layer, const at::Tensor& output) {
  if (layer.seam->keeper != nullptr)
    layer.seam->keeper->after_forward(layer, output.requires_grad());
}

BackwardUse::BackwardUse(const ParamLayer& layer)
    : layer_(layer), exceptions_(std::uncaught_exceptions()) {
  if (layer.seam->keeper != nullptr) layer.seam->keeper->before_backward(layer);
}

BackwardUse::~BackwardUse() noexcept(false) {
  // After an error the caller that catches it restores the state.
  if (layer_.seam->keeper != nullptr && std::uncaught_exceptions() == exceptions_)
    layer_.seam->keeper->after_backward(layer_);
}

void hand_over(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  throw_if_interrupted();
  if (layer.seam->consumer != nullptr && layer.trainable())
    layer.seam->consumer->consume(layer, a, g);
}

void hand_over_rows(const ParamLayer& layer, const at::Tensor& weight_rows,
                    const at::Tensor& bias_rows) {
  throw_if_interrupted();
  layer.seam->consumer->consume_rows(layer, weight_rows, bias_rows);
}

at::Tensor linear(const at::Tensor& x, ParamLayer& layer) {
  const int64_t width = layer.weight->value.flatten(1).size(1);
  MS_CHECK(x.dim() >= 2 && x.size(-1) == width,
           "layer '{}': expected input [B, ..., {}], got {}; check the model's sizes", layer.name,
           width, c10::str(x.sizes()));
  if (layer.seam->plain_autograd) return plain_linear(x, layer);
  if (layer.lora_up == nullptr)
    return with_parameters(layer,
                           [&] { return LinearFunction::apply(x, anchor_of(layer), &layer); });
  return with_parameters(*layer.lora_up, [&] {
    return with_parameters(*layer.lora_down, [&] {
      return with_parameters(layer, [&] {
        return AdaptedLinearFunction::apply(x, anchor_of(*layer.lora_up), &layer);
      });
    });
  });
}

at::Tensor patch_embedding(const at::Tensor& images, ParamLayer& layer) {
  const auto shape = layer.weight->value.sizes();
  const int64_t channels = shape[1], patch = shape[2];
  MS_CHECK(images.dim() == 4 && images.size(1) == channels && images.size(2) % patch == 0 &&
               images.size(3) % patch == 0,
           "layer '{}': expected images [B, {}, H, W] with H and W multiples of {}, got {}",
           layer.name, channels, patch, c10::str(images.sizes()));
  const int64_t B = images.size(0), rows = images.size(2) / patch, columns = images.size(3) / patch;
  const at::Tensor patches = images.reshape({B, channels, rows, patch, columns, patch})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({B, rows * columns, channels * patch * patch});
  return linear(patches.to(layer.seam->compute_type), layer);
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
  if (layer.seam->plain_autograd) {
    const auto type = layer.seam->compute_type;
    return at::embedding(rounded(*layer.weight, type), ids, layer.padding_id).to(type);
  }
  return with_parameters(layer,
                         [&] { return EmbeddingFunction::apply(ids, anchor_of(layer), &layer); });
}

at::Tensor add_positions(const at::Tensor& x, ParamLayer& layer) {
  const at::Tensor& table = layer.weight->value;
  MS_CHECK(x.dim() == 3 && x.size(1) == table.size(1) && x.size(2) == table.size(2),
           "layer '{}': expected [B, {}, {}], got {}; check image_size and patch_size", layer.name,
           table.size(1), table.size(2), c10::str(x.sizes()));
  if (layer.seam->plain_autograd) {
    const auto type = x.scalar_type(), wide = statistics_type(type);
    return (x.to(wide) + rounded(*layer.weight, type).to(wide)).to(type);
  }
  return with_parameters(layer,
                         [&] { return PositionsFunction::apply(x, anchor_of(layer), &layer); });
}

}  // namespace moonshard::models
