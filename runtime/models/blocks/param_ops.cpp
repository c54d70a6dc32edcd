#include "runtime/models/blocks/param_ops.h"

#include <atomic>
#include <exception>

#include <torch/csrc/autograd/graph_task.h>

#include "kernels/gated/gated.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/core/device.h"
#include "runtime/models/blocks/dropout.h"
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

// A linear layer's input: as it is, or f(gate) * up. Of the latter the two factors are kept, and
// backward makes the product again in the pass that it needs anyway.
struct LayerInput {
  at::Tensor first;  ///< the input, or gate
  at::Tensor up;     ///< undefined: the input is as it is
  kernels::GateFunction gate = kernels::GateFunction::Silu;

  at::Tensor value() const {
    return up.defined() ? kernels::gated_forward(first, up, gate) : first;
  }

  struct InBackward {
    at::Tensor value;  ///< undefined where it is not wanted
    at::Tensor first_gradient, up_gradient;
  };
  InBackward backward(const at::Tensor& gradient, bool wants_value) const {
    if (!up.defined()) return {first, gradient, {}};
    if (!gradient.defined()) return {wants_value ? value() : at::Tensor(), {}, {}};
    // Nothing else holds the factors; a graph that is kept needs them once more.
    const bool last = !torch::autograd::get_current_graph_task_keep_graph();
    auto found =
        kernels::gated_backward(gradient, first.variable_data(), up.variable_data(), gate,
                                {wants_value, /*overwrite_g=*/true, /*overwrite_factors=*/last});
    return {found.product, found.gate, found.up};
  }
};

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& first,
                            const std::optional<at::Tensor>& factor, const at::Tensor&,
                            ParamLayer* layer, kernels::GateFunction gate) {
    const at::Tensor up = factor.value_or(at::Tensor());
    remember_layer(context, layer);
    context->saved_data["gate"] = static_cast<int64_t>(gate);
    // A frozen layer's input is of no use in backward; the factors of one are.
    const bool keeps = layer->trainable() || up.defined();
    context->save_for_backward({keeps ? first : at::Tensor(), up});
    const at::Tensor x = LayerInput{first, up, gate}.value();
    const auto type = x.scalar_type();
    return at::linear(x, matrix_of(*layer, type), bias_of(*layer, type));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer);
    const at::Tensor g = gradients[0];
    const LayerInput kept = remembered_input(context);
    at::Tensor x_gradient;
    if (reaches_input(context, kept.up.defined()))
      x_gradient = at::matmul(g, matrix_of(layer, g.scalar_type()));
    const auto input = kept.backward(x_gradient, layer.trainable());
    hand_over(layer, input.value, g);
    return {input.first_gradient, input.up_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }

  // Without `up` the edge behind the first one is the anchor's.
  static bool reaches_input(AutogradContext* context, bool has_up) {
    return context->needs_input_grad(0) || (has_up && context->needs_input_grad(1));
  }
  // The first two that were saved.
  static LayerInput remembered_input(AutogradContext* context) {
    const auto saved = context->get_saved_variables();
    return {saved[0], saved[1],
            static_cast<kernels::GateFunction>(context->saved_data["gate"].toInt())};
  }
};

// One function for the layer and its adapter: the sum is formed in the output's own memory, and so
// is that of the input's gradient. Who consumes it sees down(x) and up(scale * down(x)). With
// dropout the adapter reads mask * x: backward makes the mask again from the samples' words.
struct AdaptedLinearFunction : Function<AdaptedLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& first,
                            const std::optional<at::Tensor>& factor, const at::Tensor&,
                            ParamLayer* layer, kernels::GateFunction gate) {
    const at::Tensor up = factor.value_or(at::Tensor());
    remember_layer(context, layer);
    context->saved_data["gate"] = static_cast<int64_t>(gate);
    const at::Tensor x = LayerInput{first, up, gate}.value();
    const auto type = x.scalar_type();
    const at::Tensor words = layer->seam->words;
    const at::Tensor mask = dropout_mask(x, *layer, words);
    const at::Tensor inner = scaled_product(
        mask.defined() ? x * mask : x, matrix_of(*layer->lora_down, type).t(), layer->lora_scale);
    at::Tensor y = at::linear(x, matrix_of(*layer, type), bias_of(*layer, type));
    add_product(y, inner, matrix_of(*layer->lora_up, type).t());
    context->save_for_backward({first, up, inner, words});
    return y;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer), use_down(*layer.lora_down), use_up(*layer.lora_up);
    const at::Tensor g = gradients[0];
    const auto type = g.scalar_type();
    const auto saved = context->get_saved_variables();
    hand_over(*layer.lora_up, saved[2], g);
    const at::Tensor inner_gradient =
        scaled_product(g, matrix_of(*layer.lora_up, type), layer.lora_scale);
    const at::Tensor mask = dropout_mask(saved[0], layer, saved[3]);  // x is of the same shape
    at::Tensor x_gradient;
    if (LinearFunction::reaches_input(context, saved[1].defined())) {
      const at::Tensor down = matrix_of(*layer.lora_down, type);
      x_gradient = at::matmul(g, matrix_of(layer, type));
      if (mask.defined()) {
        x_gradient.add_(at::matmul(inner_gradient, down).mul_(mask));
      } else {
        add_product(x_gradient, inner_gradient, down);
      }
    }
    const auto input =
        LinearFunction::remembered_input(context).backward(x_gradient, /*wants_value=*/true);
    hand_over(*layer.lora_down, mask.defined() ? input.value * mask : input.value, inner_gradient);
    hand_over(layer, input.value, g);
    return {input.first_gradient, input.up_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  // scale * left [.., k] right [k, n]: in the product itself, as a kernel for so few numbers costs
  // as much as one for many.
  static at::Tensor scaled_product(const at::Tensor& left, const at::Tensor& right, double scale) {
    const at::Tensor rows = left.reshape({-1, left.size(-1)});
    at::Tensor product = at::empty({rows.size(0), right.size(1)}, left.options());
    product.addmm_(rows, right, /*beta=*/0, /*alpha=*/scale);  // beta 0: what was there is not read
    auto shape = left.sizes().vec();
    shape.back() = right.size(1);
    return product.view(shape);
  }
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
    return at::embedding(layer->weight->value, ids).to(layer->compute_type());
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
  const at::Tensor mask = dropout_mask(x, layer, layer.seam->words);
  const at::Tensor inner =
      plain_linear(mask.defined() ? x * mask : x, *layer.lora_down).to(wide) * layer.lora_scale;
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
    : layer_(layer), exceptions_(std::uncaught_exceptions()), zone_(layer.name) {
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

static at::Tensor linear_of(const at::Tensor& first, const std::optional<at::Tensor>& up,
                            kernels::GateFunction gate, ParamLayer& layer) {
  const int64_t width = layer.weight->value.flatten(1).size(1);
  MS_CHECK(first.dim() >= 2 && first.size(-1) == width,
           "layer '{}': expected input [B, ..., {}], got {}; check the model's sizes", layer.name,
           width, c10::str(first.sizes()));
  if (layer.seam->plain_autograd)
    return plain_linear(LayerInput{first, up.value_or(at::Tensor()), gate}.value(), layer);
  if (layer.lora_up == nullptr)
    return with_parameters(
        layer, [&] { return LinearFunction::apply(first, up, anchor_of(layer), &layer, gate); });
  return with_parameters(*layer.lora_up, [&] {
    return with_parameters(*layer.lora_down, [&] {
      return with_parameters(layer, [&] {
        return AdaptedLinearFunction::apply(first, up, anchor_of(*layer.lora_up), &layer, gate);
      });
    });
  });
}

at::Tensor linear(const at::Tensor& x, ParamLayer& layer) {
  return linear_of(x, std::nullopt, kernels::GateFunction::Silu, layer);
}

at::Tensor gated_linear(const at::Tensor& gate, const at::Tensor& up,
                        kernels::GateFunction function, ParamLayer& layer) {
  return linear_of(gate, up, function, layer);
}

bool gating_is_fused(const Seam& seam, const at::Tensor& gate) {
  return !seam.plain_autograd && takes_fused_form(kernels::gated_kernel_runs(gate));
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
  return linear(patches.to(layer.compute_type()), layer);
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
    const auto type = layer.compute_type();
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
