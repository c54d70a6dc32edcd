#include "runtime/models/blocks/param_ops.h"

#include <atomic>
#include <exception>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/models/blocks/layer_function.h"

namespace moonshard::models {
namespace {

std::atomic<bool> fused_everywhere{false};

using namespace layer_function;

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

void after_forward(const ParamLayer& layer, bool in_graph) {
  if (layer.seam->keeper != nullptr) layer.seam->keeper->after_forward(layer, in_graph);
}

void after_forward(const ParamLayer& layer, const at::Tensor& output) {
  after_forward(layer, output.requires_grad());
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
  if (layer.seam->consumer == nullptr || !layer.trainable()) return;
  // Who keeps the input keeps its numbers alone: the graph behind it would hold the input of a
  // block that ran again for as long.
  layer.seam->consumer->consume(layer, a.defined() ? a.variable_data() : a, g);
}

void hand_over_rows(const ParamLayer& layer, const at::Tensor& weight_rows,
                    const at::Tensor& bias_rows) {
  throw_if_interrupted();
  layer.seam->consumer->consume_rows(layer, weight_rows, bias_rows);
}

void hand_over_samples(const ParamLayer& layer, int64_t samples, const AddSample& add) {
  throw_if_interrupted();
  layer.seam->consumer->consume_samples(layer, samples, add);
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
