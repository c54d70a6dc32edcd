// Queries, keys and values that one projection makes: taken apart for attention, and put together
// again for the projection's gradient.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>

namespace moonshard::models {

/// Of a projection's output [B, T, 3 H d]: queries, keys and values as views [B, H, T, d]. Backward
/// writes the three gradients beside each other in one pass over them.
std::array<at::Tensor, 3> heads_of(const at::Tensor& qkv, int64_t heads, int64_t head_dim);

}  // namespace moonshard::models
