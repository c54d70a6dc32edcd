// Attention of all families: grouped-query or plain, causal or not, fused or as a matrix of scores.
// Shape letters: B samples, H heads, T tokens, d head dimension.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace moonshard::models {

enum class AttentionKind {
  Flash,    ///< LibTorch's fused attention: no T x T matrix in memory
  Standard  ///< matmul, softmax (float32 or wider), matmul: the T x T weights are kept for backward
};

/// "flash" or "standard", the words of ModelOptions::attention.
AttentionKind attention_kind(const std::string& name);

/// q [B, Hq, T, d], k and v [B, Hkv, T, d], Hq a multiple of Hkv -> [B, Hq, T, d]. Query head h
/// reads key head h / (Hq / Hkv). Causal: token t sees tokens 0 … t.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                     AttentionKind kind);

}  // namespace moonshard::models
