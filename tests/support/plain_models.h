// Stacks of Linear and decoders once more, by plain autograd on leaf tensors and textbook formulas
// (attention by matmul and softmax, heads repeated): the reference that tests compare the runtime
// with. Shares no code with it.
#pragma once

#include <map>
#include <string>

#include <ATen/ATen.h>

#include "runtime/core/batch.h"
#include "runtime/models/model.h"

namespace moonshard {

/// Copies of a model's parameters that require gradients, by name.
using Leaves = std::map<std::string, at::Tensor>;
Leaves leaves_of(const models::Model& model);

/// Per-sample losses [B] of the model's family and task, as a function of the leaves.
at::Tensor plain_losses(const models::ModelOptions& options, const Leaves& leaves,
                        const Batch& batch);

/// Sample b of a batch, alone.
Batch sample_of(const Batch& batch, int64_t b);

/// Gradient of each sample alone by a batch-of-one backward: name -> [B, shape].
std::map<std::string, at::Tensor> per_sample_reference(const models::Model& model,
                                                       const Batch& batch);

/// What a step has moved the parameters by, down: with SGD and lr = 1 the gradient that it used.
template <class Step>
std::map<std::string, at::Tensor> step_gradients(const models::Model& model, const Step& step) {
  std::map<std::string, at::Tensor> before, moved;
  for (const auto& p : model.parameters()) before[p->name] = p->value.clone();
  step();
  for (const auto& p : model.parameters()) moved[p->name] = before[p->name] - p->value;
  return moved;
}

}  // namespace moonshard
