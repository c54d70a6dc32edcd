#include "runtime/models/families/linear/linear.h"

#include <cmath>

#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"

namespace moonshard::models {

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
  at::Tensor x_BD = batch.inputs.to(seam().compute_type);
  for (ParamLayer* layer : stack_) x_BD = linear(x_BD, *layer);
  return x_BD;
}

at::Tensor LinearStack::losses(const Batch& batch) {
  return regression_losses(forward(batch), batch.targets);
}

}  // namespace moonshard::models
