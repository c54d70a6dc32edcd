// Activation checkpointing: a block's inputs are kept instead of its activations; backward runs the
// block's forward once more. The block must be a pure function of its inputs and the parameters.
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::models {

/// A block of one stream x and an optional conditioning c (undefined when the block has none).
using BlockFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& c)>;

/// block(x, c), recomputed in backward when `on`. What the block captures must outlive the graph.
at::Tensor checkpointed(const Seam& seam, bool on, BlockFunction block, const at::Tensor& x,
                        const at::Tensor& c = {});

}  // namespace moonshard::models
