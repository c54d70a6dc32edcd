// Dropout of an adapter's input (option lora_dropout). A mask is a function of the sample's word,
// the layer and the place in the sample alone: a second forward pass of a recomputed block, a
// batch of one and any split into micro-batches and ranks see the same, and it is made again where
// it is needed instead of being kept.
#pragma once

#include "runtime/models/parameter.h"

namespace moonshard::models {

/// What x [B, …, d] is multiplied by before the adapter of `layer`: 0 with the layer's probability,
/// as a whole number of 1/65,536, else 1 over the rest of it. Undefined where nothing is dropped:
/// without words [B] (Seam::words), which only a training step has.
at::Tensor dropout_mask(const at::Tensor& x, const ParamLayer& layer, const at::Tensor& words);

}  // namespace moonshard::models
