#include "runtime/models/blocks/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/core/tuning.h"
#include "runtime/models/blocks/activations.h"
#include "runtime/models/blocks/kept_attention.h"
#include "runtime/profile/kernel_timer.h"

namespace moonshard::models {
namespace {

at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           bool causal, int64_t window = 0) {
  if (keeps_attention(q, k)) return kept_attention(q, k, v, causal, window);
  if (window > 0) return std::get<0>(window_attention(q, k, v, window));
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

// The queries of a group are rows one after the other: no copies of keys and values, which kernels
// that take a mask would ask for.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& mask) {
  const int64_t B = q.size(0), Hq = q.size(1), Hkv = k.size(1), T = q.size(2), d = q.size(3);
  const at::Tensor grouped = q.reshape({B, Hkv, Hq / Hkv * T, d});
  return at::scaled_dot_product_attention(grouped, k, v, mask).reshape({B, Hq, T, d});
}

at::Tensor standard_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              bool causal, const ScoreRules& rules = {}) {
  const int64_t B = q.size(0), Hq = q.size(1), Hkv = k.size(1), T = q.size(2), d = q.size(3);
  const int64_t G = Hq / Hkv;
  // The queries of a group lie one after the other: keys and values are used without a copy.
  const at::Tensor grouped = q.reshape({B, Hkv, G * T, d});
  at::Tensor scores = at::matmul(grouped, k.transpose(-1, -2)) * (1.0 / std::sqrt(double(d)));
  if (rules.softcap > 0) scores = soft_capped(scores, rules.softcap);
  if (causal) {
    scores = scores.view({B, Hkv, G, T, T})
                 .masked_fill(rules.hidden.defined() ? rules.hidden
                                                     : hidden_tokens(T, rules.window, q.options()),
                              -std::numeric_limits<double>::infinity())
                 .view({B, Hkv, G * T, T});
  }
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weights = at::softmax(scores, -1, wide).to(v.scalar_type());
  return at::matmul(weights, v).view({B, Hq, T, d});
}

// How far apart the kernels may be, relative to a tensor's norm: both round to 16 bits in between,
// at other places. A kernel that does not support a shape is off by far more.
constexpr double kAgreement = 0.02;

struct Trial {
  double ms = 0;
  std::vector<at::Tensor> results;  ///< output, gradients of q, k and v
};

Trial try_kernel(AttentionKernel kernel, const std::vector<at::Tensor>& qkv, const at::Tensor& g,
                 bool causal) {
  Trial trial;
  const auto once = [&] {
    const at::Tensor y = run_attention(kernel, qkv[0], qkv[1], qkv[2], causal);
    trial.results = torch::autograd::grad({y}, qkv, {g});
    trial.results.insert(trial.results.begin(), y.detach());
  };
  trial.ms = profile::best_ms(g.device(), /*repeats=*/5, once);
  return trial;
}

bool agree(const Trial& a, const Trial& b) {
  for (size_t i = 0; i < a.results.size(); ++i) {
    const at::Tensor wide = a.results[i].to(at::kFloat);
    const double difference =
        ((b.results[i].to(at::kFloat) - wide).norm() / wide.norm()).item<double>();
    if (!(difference < kAgreement)) return false;
  }
  return true;
}

// On random tensors laid out as the models' are: heads beside each other in a token's row.
std::map<std::string, double> time_kernels(const at::Tensor& like_q, const at::Tensor& like_k,
                                           bool causal) {
  const at::AutoGradMode enable(true);
  const auto make = [&](const at::Tensor& like) {
    return at::randn({like.size(0), like.size(2), like.size(1), like.size(3)},
                     like.options().requires_grad(false))
        .transpose(1, 2)
        .set_requires_grad(true);
  };
  const std::vector<at::Tensor> qkv{make(like_q), make(like_k), make(like_k)};
  const at::Tensor g = make(like_q).detach();
  const Trial flash = try_kernel(AttentionKernel::Flash, qkv, g, causal);
  std::map<std::string, double> times{{attention_kernel_name(AttentionKernel::Flash), flash.ms}};
  try {
    const Trial cudnn = try_kernel(AttentionKernel::Cudnn, qkv, g, causal);
    if (agree(flash, cudnn)) times[attention_kernel_name(AttentionKernel::Cudnn)] = cudnn.ms;
  } catch (const c10::Error&) {  // cuDNN does not support this shape, or is missing
  }
  return times;
}

std::mutex& choices_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::map<std::string, AttentionKernel>& choices() {
  static std::map<std::string, AttentionKernel> known;
  return known;
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

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            AttentionKind kind, const ScoreRules& rules) {
  if (kind == AttentionKind::Standard || rules.softcap > 0)
    return standard_attention(q, k, v, /*causal=*/true, rules);
  if (rules.window_mask.defined()) return masked_attention(q, k, v, rules.window_mask);
  return fused_attention(q, k, v, /*causal=*/true, rules.window);
}

at::Tensor grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ScoreRules& rules, const at::Tensor& hidden) {
  const at::Tensor scaled = q * (1.0 / std::sqrt(double(q.size(3))));
  at::Tensor scores = at::matmul(scaled, k.transpose(-1, -2));
  if (rules.softcap > 0) scores = soft_capped(scores, rules.softcap);
  scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor weights = at::softmax(scores, -1, wide).to(v.scalar_type());
  return at::matmul(weights, v);
}

at::Tensor single_query_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const ScoreRules& rules, const at::Tensor& hidden) {
  const int64_t B = q.size(0), Hq = q.size(1), Hkv = k.size(1), d = q.size(3);
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return grouped_attention(q.reshape({B, Hkv, Hq / Hkv, d}).to(wide), k.to(wide), v.to(wide), rules,
                           hidden)
      .to(v.scalar_type())
      .view({B, Hq, 1, d});
}

at::Tensor hidden_tokens(int64_t tokens, int64_t window, const at::TensorOptions& options) {
  const at::Tensor all = at::ones({tokens, tokens}, options.dtype(at::kBool).requires_grad(false));
  const at::Tensor future = all.triu(1);
  return window > 0 && window < tokens ? future.logical_or(all.tril(-window)) : future;
}

at::Tensor window_mask(int64_t tokens, int64_t group, int64_t window, const at::Tensor& like) {
  const auto options = like.options().requires_grad(false);
  return at::zeros({tokens, tokens}, options)
      .masked_fill_(hidden_tokens(tokens, window, options),
                    -std::numeric_limits<double>::infinity())
      .repeat({group, 1});
}

const char* attention_kernel_name(AttentionKernel kernel) {
  return kernel == AttentionKernel::Flash ? "flash" : "cudnn";
}

bool has_flash_kernel(const at::Tensor& like, int64_t head_dim) {
  return like.is_cuda() &&
         (like.scalar_type() == at::kBFloat16 || like.scalar_type() == at::kHalf) &&
         is_flash_width(head_dim) && like.numel() > 0;
}

bool attention_has_choice(const at::Tensor& q, const at::Tensor& k) {
  return has_flash_kernel(q, q.size(3)) && q.size(3) <= 128 && q.size(2) == k.size(2);
}

std::string attention_key(const at::Tensor& q, const at::Tensor& k, bool causal) {
  return fmt::format("attention: B {} Hq {} Hkv {} T {} d {} {} {}", q.size(0), q.size(1),
                     k.size(1), q.size(2), q.size(3), causal ? "causal" : "full",
                     dtype_name(q.scalar_type()));
}

AttentionKernel attention_kernel(const at::Tensor& q, const at::Tensor& k, bool causal) {
  // cuDNN's backward sums in no fixed order.
  if (at::globalContext().deterministicAlgorithms()) return AttentionKernel::Flash;
  const std::string key = attention_key(q, k, causal);
  // Held while the kernels are timed: a second thread waits for the result.
  const std::lock_guard lock(choices_mutex());
  const auto known = choices().find(key);
  if (known != choices().end()) return known->second;
  const std::string name = tuned_choice(profile::machine_of(q.device()), key,
                                        [&] { return time_kernels(q, k, causal); });
  const AttentionKernel kernel = name == attention_kernel_name(AttentionKernel::Cudnn)
                                     ? AttentionKernel::Cudnn
                                     : AttentionKernel::Flash;
  choices()[key] = kernel;
  return kernel;
}

void set_attention_choice(const std::string& key, AttentionKernel kernel) {
  const std::lock_guard lock(choices_mutex());
  choices()[key] = kernel;
}

std::map<std::string, std::string> attention_choices() {
  const std::lock_guard lock(choices_mutex());
  std::map<std::string, std::string> named;
  for (const auto& [key, kernel] : choices()) named[key] = attention_kernel_name(kernel);
  return named;
}

at::Tensor run_attention(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, bool causal) {
  if (kernel == AttentionKernel::Flash)
    return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, causal));
  const bool in_graph =
      at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  return std::get<0>(at::_scaled_dot_product_cudnn_attention(
      q, k, v, std::nullopt, /*compute_log_sumexp=*/in_graph, 0.0, causal));
}

// LibTorch's public form has no window; this one is below it, with heads behind tokens.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> window_attention(const at::Tensor& q,
                                                                            const at::Tensor& k,
                                                                            const at::Tensor& v,
                                                                            int64_t window) {
  auto [out, log_sums, seed, offset, debug] = at::_flash_attention_forward(
      q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, {}, q.size(2), k.size(2),
      /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false, std::nullopt,
      /*window_size_left=*/window - 1, /*window_size_right=*/0);
  return {out.transpose(1, 2), log_sums, seed, offset};
}

}  // namespace moonshard::models
