// Parametered operations: autograd functions whose backward gives the input's gradient and hands
// (layer, a, g) to the seam's consumer. Weights are read from the layer when they are needed, in
// forward and in backward, and never saved in the graph: a sharded weight may come and go between
// the two.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::models {

/// x [B, …, d_in] -> [B, …, d_out]; weight [d_out, d_in].
at::Tensor linear(const at::Tensor& x, ParamLayer& layer);

/// ids [B, T] int64 -> [B, T, d]; weight [n, d]. Throws UsageError for an id outside 0 … n-1.
at::Tensor embedding(const at::Tensor& ids, ParamLayer& layer);

/// x [B, …, d] -> x / sqrt(mean(x^2) + eps) * weight; statistics in float32 or wider.
at::Tensor rms_norm(const at::Tensor& x, ParamLayer& layer, double eps);

}  // namespace moonshard::models
