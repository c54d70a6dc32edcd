// Activation checkpointing: a block's inputs are kept instead of its activations; backward runs the
// block's forward once more. The block must be a pure function of its inputs and the parameters.
#pragma once

#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::models {

/// A block of one stream x and an optional conditioning c (undefined when the block has none).
using BlockFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& c)>;

enum class Recompute {
  Nothing,
  Block,
  AllButAttention  ///< attention's output is kept as well (kept_attention.h)
};

/// Of block number `index` under the options checkpointing and checkpoint_every.
Recompute recompute_of(const std::string& checkpointing, int64_t every, size_t index);

/// block(x, c); what it recomputes in backward is not kept. `trains`: a layer of it is trained;
/// else backward comes only where an input needs it. What the block captures must outlive the
/// graph.
at::Tensor checkpointed(const Seam& seam, Recompute what, bool trains, BlockFunction block,
                        const at::Tensor& x, const at::Tensor& c = {});

}  // namespace moonshard::models
