#include "runtime/models/blocks/attention.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/models/blocks/attention_choice.h"

namespace moonshard::models {
namespace {

at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           bool causal) {
  if (attention_has_choice(q, k))
    return run_attention(attention_kernel(q, k, causal), q, k, v, causal);
  const int64_t repeat = q.size(1) / k.size(1);
  const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  if (repeat > 1 && q.is_cuda() && !half) {
    // LibTorch's fused CUDA kernel for 32-bit dtypes has no grouped-query form and would fall back
    // to a T x T matrix; repeating the heads costs far less.
    return at::scaled_dot_product_attention(q, k.repeat_interleave(repeat, 1),
                                            v.repeat_interleave(repeat, 1), std::nullopt, 0.0,
                                            causal);
  }
  return at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, causal, std::nullopt,
                                          repeat > 1);
}

at::Tensor standard_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              bool causal) {
  const int64_t B = q.size(0), Hq = q.size(1), Hkv = k.size(1), T = q.size(2), d = q.size(3);
  const int64_t G = Hq / Hkv;
  // The queries of a group lie one after the other: keys and values are used without a copy.
  const at::Tensor grouped = q.reshape({B, Hkv, G * T, d});
  at::Tensor scores = at::matmul(grouped, k.transpose(-1, -2)) * (1.0 / std::sqrt(double(d)));
  if (causal) {
    const at::Tensor future = at::ones({T, T}, q.options().dtype(at::kBool)).triu(1);
    scores = scores.view({B, Hkv, G, T, T})
                 .masked_fill(future, -std::numeric_limits<double>::infinity())
                 .view({B, Hkv, G * T, T});
  }
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weights = at::softmax(scores, -1, wide).to(v.scalar_type());
  return at::matmul(weights, v).view({B, Hq, T, d});
}

}  // namespace

AttentionKind attention_kind(const std::string& name) {
  MS_CHECK(name == "flash" || name == "standard",
           "model: expected attention flash or standard, got '{}'", name);
  return name == "flash" ? AttentionKind::Flash : AttentionKind::Standard;
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                     AttentionKind kind) {
  return kind == AttentionKind::Flash ? fused_attention(q, k, v, causal)
                                      : standard_attention(q, k, v, causal);
}

}  // namespace moonshard::models
