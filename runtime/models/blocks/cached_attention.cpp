#include "runtime/models/blocks/cached_attention.h"

#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "runtime/profile/kernel_timer.h"

namespace moonshard::models {
namespace {

// Prompts have any length: timing kernels for each, as training does for its one, would cost more
// than it saves.
at::Tensor prompt_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            AttentionKind kind, const ScoreRules& rules) {
  const bool is_plain = rules.softcap == 0 && rules.window == 0;
  if (kind == AttentionKind::Flash && is_plain && attention_has_choice(q, k))
    return run_attention(AttentionKernel::Flash, q, k, v, /*causal=*/true);
  return causal_attention(q, k, v, kind, rules);
}

// q [B, Hkv, G, d]
at::Tensor by_fused_kernel(const at::Tensor& q, const LayerCache& cache, const at::Tensor& bias) {
  const at::Tensor& k = cache.keys;
  return std::get<0>(at::_scaled_dot_product_efficient_attention(
      q, k, cache.values, bias.expand({q.size(0), q.size(1), q.size(2), k.size(2)}),
      /*compute_log_sumexp=*/false));
}

bool may_be_fused(const at::Tensor& x) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         !at::globalContext().deterministicAlgorithms();
}

// Both round to 16 bits in between, at other places; a kernel that does not support a shape is off
// by far more.
constexpr double kTokenAgreement = 0.02;

bool fused_is_faster(const at::Tensor& q, const LayerCache& cache, const TokenSlots& slots) {
  const at::Tensor sample = at::randn_like(q);
  const LayerCache kept{at::randn_like(cache.keys), at::randn_like(cache.values)};
  at::Tensor products, fused;
  const double products_ms = profile::best_ms(q.device(), /*repeats=*/5, [&] {
    products = grouped_attention(sample, kept.keys, kept.values, {}, slots.hidden);
  });
  try {
    const double fused_ms = profile::best_ms(
        q.device(), /*repeats=*/5, [&] { fused = by_fused_kernel(sample, kept, slots.bias); });
    const at::Tensor wide = products.to(at::kFloat);
    const double off = ((fused.to(at::kFloat) - wide).norm() / wide.norm()).item<double>();
    return off < kTokenAgreement && fused_ms < products_ms;
  } catch (const c10::Error&) {  // not supported here
    return false;
  }
}

bool takes_fused_kernel(const at::Tensor& q, const LayerCache& cache, const TokenSlots& slots) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, bool> known;
  std::vector<int64_t> shape = cache.keys.sizes().vec();
  shape.push_back(q.size(2));
  shape.push_back(static_cast<int64_t>(q.scalar_type()));
  const std::lock_guard lock(mutex);
  const auto found = known.find(shape);
  if (found != known.end()) return found->second;
  return known[shape] = fused_is_faster(q, cache, slots);
}

at::Tensor token_attention(const at::Tensor& q, const ScoreRules& rules, const LayerCache& cache,
                           const TokenSlots& slots) {
  const int64_t B = q.size(0), Hq = q.size(1), Hkv = cache.keys.size(1), d = q.size(3);
  const at::Tensor grouped = q.reshape({B, Hkv, Hq / Hkv, d});
  const bool fused =
      slots.bias.defined() && rules.softcap == 0 && takes_fused_kernel(grouped, cache, slots);
  const at::Tensor y =
      fused ? by_fused_kernel(grouped, cache, slots.bias)
            : grouped_attention(grouped, cache.keys, cache.values, rules, slots.hidden);
  return y.reshape({B, Hq, 1, d});
}

}  // namespace

at::Tensor hidden_slots(const at::Tensor& positions, int64_t slots, int64_t window) {
  const at::Tensor places = at::arange(slots, positions.options()).view({1, 1, 1, slots});
  const at::Tensor own = positions.view({-1, 1, 1, 1});
  at::Tensor hidden = places > own;
  if (window > 0) hidden.logical_or_(places <= own - window);
  return hidden;
}

TokenSlots token_slots(const at::Tensor& positions, int64_t kv_heads, int64_t slots, int64_t window,
                       const at::Tensor& like) {
  const int64_t B = positions.size(0);
  const at::Tensor heads = at::arange(B * kv_heads, positions.options());
  TokenSlots result;
  result.written =
      heads * slots + positions.unsqueeze(1).expand({B, kv_heads}).reshape({B * kv_heads});
  result.hidden = hidden_slots(positions, slots, window);
  if (may_be_fused(like))
    result.bias = at::zeros(result.hidden.sizes(), like.options())
                      .masked_fill_(result.hidden, -std::numeric_limits<double>::infinity());
  return result;
}

at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            AttentionKind kind, const ScoreRules& rules, LayerCache& cache,
                            const TokenSlots& slots) {
  if (!slots.written.defined()) {
    cache.keys.narrow(2, 0, k.size(2)).copy_(k);
    cache.values.narrow(2, 0, v.size(2)).copy_(v);
    return prompt_attention(q, k, v, kind, rules);
  }
  const int64_t d = k.size(3);
  const auto keep = [&](const at::Tensor& kept, const at::Tensor& now) {
    kept.view({-1, d}).index_copy_(0, slots.written, now.reshape({-1, d}));
  };
  keep(cache.keys, k);
  keep(cache.values, v);
  return token_attention(q, rules, cache, slots);
}

}  // namespace moonshard::models
