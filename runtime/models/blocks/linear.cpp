// Linear layers, with their adapters and for a gated input: one autograd function for all layers
// that read one input, as queries, keys and values do. On a GPU their parts of the input's gradient
// are summed by the products themselves; autograd would write each and then add them.
#include <algorithm>
#include <span>

#include <torch/csrc/autograd/graph_task.h>

#include "kernels/gated/gated.h"
#include "runtime/base/check.h"
#include "runtime/models/blocks/dropout.h"
#include "runtime/models/blocks/layer_function.h"
#include "runtime/models/blocks/param_ops.h"

namespace moonshard::models {
namespace {

using namespace layer_function;

// A patch embedding's [D, C, p, p] as the matrix [D, C p p] that it is.
at::Tensor matrix_of(const ParamLayer& layer, at::ScalarType type) {
  const profile::OwnerScope cast(profile::Owner::CastParameters);
  return layer.weight->value.flatten(1).to(type);
}

// A layer's input: as it is, or f(gate) * up. Of the latter the two factors are kept, and backward
// makes the product again in the pass that it needs anyway.
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

bool has_adapter(const ParamLayer* layer) {
  return layer->lora_up != nullptr;
}

at::Tensor adapter_input(const at::Tensor& x, const std::optional<kernels::DropoutCoins>& coins) {
  return coins ? kernels::sample_dropout(x, *coins) : x;
}

// scale * left [.., k] right [k, n]: in the product itself, as a kernel for so few numbers costs
// as much as one for many.
at::Tensor scaled_product(const at::Tensor& left, const at::Tensor& right, double scale) {
  const at::Tensor rows = left.reshape({-1, left.size(-1)});
  at::Tensor product = at::empty({rows.size(0), right.size(1)}, left.options());
  product.addmm_(rows, right, /*beta=*/0, /*alpha=*/scale);  // beta 0: what was there is not read
  auto shape = left.sizes().vec();
  shape.back() = right.size(1);
  return product.view(shape);
}

// sum [.., n] += left [.., k] right [k, n]; the product itself where there is no sum yet.
void add_product(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right) {
  if (sum.defined()) {
    sum.view({-1, sum.size(-1)}).addmm_(left.reshape({-1, left.size(-1)}), right);
  } else {
    sum = at::matmul(left, right);
  }
}

// The gradient of the input that several layers read. `fused`: layers add to it in their products,
// and adapters in one over the ranks of all of them. On the CPU such products round by where their
// operands lie in memory, and wrappers would give different digits.
class InputGradient {
 public:
  explicit InputGradient(bool fused) : fused_(fused) {}

  /// `inner`: the gradient of what the adapter has between its layers, where there is one.
  void add(const ParamLayer& layer, const at::Tensor& g, const at::Tensor& inner,
           const std::optional<kernels::DropoutCoins>& coins) {
    at::Tensor part = fused_ ? sum_ : at::Tensor();
    add_product(part, g, matrix_of(layer, g.scalar_type()));
    if (inner.defined())
      add_adapter(part, inner, matrix_of(*layer.lora_down, g.scalar_type()), coins);
    sum_ = fused_ || !sum_.defined() ? part : sum_.add_(part);
  }

  at::Tensor whole() {
    if (!downs_.empty()) {
      const bool one = downs_.size() == 1;
      add_product(sum_, one ? inners_[0] : at::cat(inners_, -1), one ? downs_[0] : at::cat(downs_));
    }
    return sum_;
  }

 private:
  void add_adapter(at::Tensor& part, const at::Tensor& inner, const at::Tensor& down,
                   const std::optional<kernels::DropoutCoins>& coins) {
    if (coins) {
      kernels::add_sample_dropout(part, at::matmul(inner, down), *coins);
    } else if (fused_) {
      inners_.push_back(inner);
      downs_.push_back(down);
    } else {
      add_product(part, inner, down);
    }
  }

  bool fused_;
  at::Tensor sum_;
  std::vector<at::Tensor> inners_, downs_;
};

// The parameters of these layers are in place while `run` does: one scope in another.
template <class Run>
void with_backward_use(std::span<ParamLayer* const> layers, Run run) {
  if (layers.empty()) return run();
  const BackwardUse use(*layers.front());
  with_backward_use(layers.subspan(1), run);
}

// Of an adapted layer the sum is formed in the output's own memory. Who consumes its adapter sees
// down(x) and up(scale * down(x)). With dropout the adapter reads x with numbers dropped, which
// backward makes again from the samples' words.
struct LinearFunction : Function<LinearFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& first,
                               const std::optional<at::Tensor>& factor, const at::Tensor&,
                               const std::vector<ParamLayer*>* layers, kernels::GateFunction gate,
                               bool in_graph) {
    const LayerInput input{first, factor.value_or(at::Tensor()), gate};
    const at::Tensor x = input.value(), words = layers->front()->seam->words;
    variable_list outputs;
    // A frozen layer's input is of no use in backward; the factors of one are.
    const bool keeps = input.up.defined() || std::ranges::any_of(*layers, [](const auto* layer) {
                         return layer->trainable() || has_adapter(layer);
                       });
    variable_list saved{keeps ? first : at::Tensor(), input.up, words};
    std::vector<int64_t> addresses;  // the model owns them and outlives the graph
    for (ParamLayer* layer : *layers) {
      at::Tensor inner;
      outputs.push_back(with_all_parameters(*layer, in_graph,
                                            [&] { return output_of(*layer, x, words, inner); }));
      saved.push_back(inner);
      addresses.push_back(reinterpret_cast<int64_t>(layer));
    }
    context->saved_data["layers"] = addresses;
    context->saved_data["gate"] = static_cast<int64_t>(gate);
    context->save_for_backward(saved);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    std::vector<ParamLayer*> layers, downs;
    for (const int64_t address : context->saved_data["layers"].toIntVector()) {
      layers.push_back(reinterpret_cast<ParamLayer*>(address));
      if (has_adapter(layers.back())) downs.push_back(layers.back()->lora_down);
    }
    const auto saved = context->get_saved_variables();
    const LayerInput kept{saved[0], saved[1],
                          static_cast<kernels::GateFunction>(context->saved_data["gate"].toInt())};
    // Without `up` the edge behind the first one is the anchor's.
    const bool reaches_input =
        context->needs_input_grad(0) || (kept.up.defined() && context->needs_input_grad(1));
    LayerInput::InBackward input;
    with_backward_use(downs, [&] {
      InputGradient x_gradient(takes_fused_form(gradients[0].is_cuda()));
      for (size_t i = layers.size(); i-- > 0;) {
        ParamLayer& layer = *layers[i];
        std::vector<ParamLayer*> used{&layer};
        if (has_adapter(&layer)) used.push_back(layer.lora_up);
        with_backward_use(used, [&] {
          const at::Tensor& g = gradients[i];
          const auto coins = has_adapter(&layer) ? dropout_coins(layer, saved[2]) : std::nullopt;
          at::Tensor inner;
          if (has_adapter(&layer)) {
            hand_over(*layer.lora_up, saved[3 + i], g);
            inner = scaled_product(g, matrix_of(*layer.lora_up, g.scalar_type()), layer.lora_scale);
          }
          if (reaches_input) x_gradient.add(layer, g, inner, coins);
          // A gated input is one layer's alone (linear_of).
          input = kept.backward(reaches_input && i == 0 ? x_gradient.whole() : at::Tensor(),
                                layer.trainable() || has_adapter(&layer));
          if (has_adapter(&layer))
            hand_over(*layer.lora_down, adapter_input(input.value, coins), inner);
          hand_over(layer, input.value, g);
        });
      }
    });
    return {input.first_gradient, input.up_gradient, {}, {}, {}, {}};
  }

 private:
  static at::Tensor output_of(const ParamLayer& layer, const at::Tensor& x, const at::Tensor& words,
                              at::Tensor& inner) {
    const auto type = x.scalar_type();
    if (!has_adapter(&layer)) return at::linear(x, matrix_of(layer, type), bias_of(layer, type));
    inner = scaled_product(adapter_input(x, dropout_coins(layer, words)),
                           matrix_of(*layer.lora_down, type).t(), layer.lora_scale);
    at::Tensor y = at::linear(x, matrix_of(layer, type), bias_of(layer, type));
    add_product(y, inner, matrix_of(*layer.lora_up, type).t());
    return y;
  }

  template <class Run>
  static at::Tensor with_all_parameters(const ParamLayer& layer, bool in_graph, Run run) {
    const auto itself = [&] { return with_parameters(layer, run, in_graph); };
    if (!has_adapter(&layer)) return itself();
    const auto with_down = [&] { return with_parameters(*layer.lora_down, itself, in_graph); };
    return with_parameters(*layer.lora_up, with_down, in_graph);
  }
};

// Plain autograd: the same layer by LibTorch's own operations.
at::Tensor plain_linear(const at::Tensor& x, const ParamLayer& layer) {
  const auto type = x.scalar_type(), wide = statistics_type(type);
  const at::Tensor weight = rounded(*layer.weight, type).flatten(1).to(wide);
  at::Tensor y = at::matmul(x.to(wide), weight.t());
  if (layer.bias != nullptr) y = y + rounded(*layer.bias, type).to(wide);
  if (layer.lora_up == nullptr) return y.to(type);
  const auto coins = dropout_coins(layer, layer.seam->words);
  const at::Tensor read = coins ? x * kernels::sample_dropout_mask(x, *coins) : x;
  const at::Tensor inner = plain_linear(read, *layer.lora_down).to(wide) * layer.lora_scale;
  return (y + plain_linear(inner.to(type), *layer.lora_up).to(wide)).to(type);
}

std::vector<at::Tensor> linear_of(const LayerInput& input, const std::vector<ParamLayer*>& layers) {
  for (const ParamLayer* layer : layers) {
    const int64_t width = layer->weight->value.flatten(1).size(1);
    MS_CHECK(input.first.dim() >= 2 && input.first.size(-1) == width,
             "layer '{}': expected input [B, ..., {}], got {}; check the model's sizes",
             layer->name, width, c10::str(input.first.sizes()));
  }
  if (layers.front()->seam->plain_autograd) {
    std::vector<at::Tensor> outputs;
    const at::Tensor x = input.value();
    for (const ParamLayer* layer : layers) outputs.push_back(plain_linear(x, *layer));
    return outputs;
  }
  const bool trains = std::ranges::any_of(layers, [](const ParamLayer* layer) {
    return layer->trainable() || (has_adapter(layer) && layer->lora_up->trainable());
  });
  const Seam& seam = *layers.front()->seam;
  const at::Tensor& anchor = trains ? seam.anchor : seam.no_anchor;
  const bool in_graph =
      at::GradMode::is_enabled() &&
      (input.first.requires_grad() || (input.up.defined() && input.up.requires_grad()) ||
       anchor.requires_grad());
  const auto factor = input.up.defined() ? std::make_optional(input.up) : std::nullopt;
  return LinearFunction::apply(input.first, factor, anchor, &layers, input.gate, in_graph);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, ParamLayer& layer) {
  return linear_of({x, {}}, {&layer}).front();
}

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<ParamLayer*>& layers) {
  return linear_of({x, {}}, layers);
}

at::Tensor gated_linear(const at::Tensor& gate, const at::Tensor& up,
                        kernels::GateFunction function, ParamLayer& layer) {
  return linear_of({gate, up, function}, {&layer}).front();
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

}  // namespace moonshard::models
