// Dropout of an adapter's input (option lora_dropout): which numbers are dropped follows from the
// sample's word, the layer and the place in the sample (kernels/sample_dropout), so that a second
// forward pass of a recomputed block drops the same.
#pragma once

#include <optional>

#include "kernels/sample_dropout/sample_dropout.h"
#include "runtime/models/parameter.h"

namespace moonshard::models {

/// Coins of the adapter of `layer`. None where nothing is dropped: without words [B] (Seam::words),
/// which only a training step has.
std::optional<kernels::DropoutCoins> dropout_coins(const ParamLayer& layer,
                                                   const at::Tensor& words);

}  // namespace moonshard::models
