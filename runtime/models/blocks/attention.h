// Causal grouped-query attention with rotary positions, as Llama 3 has it.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::models {

/// Cosines and sines of rotary positions for T tokens: each [T, head_dim], Hugging Face's
/// half-split layout (dimension i pairs with i + head_dim / 2). Made in float32 or wider, cast to
/// `like`'s format.
struct RotaryTable {
  at::Tensor cosines, sines;
};
RotaryTable rotary_table(int64_t tokens, int64_t head_dim, double base, const at::Tensor& like);

/// Rotates x [B, H, T, head_dim] by the positions of the table.
at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table);

/// q [B, Hq, T, d], k and v [B, Hkv, T, d], Hq a multiple of Hkv -> [B, Hq, T, d].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace moonshard::models
