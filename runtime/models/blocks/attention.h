// Attention of all families: grouped-query or plain, causal or not, fused or as a matrix of scores.
// Shape letters: B samples, H heads, T tokens, d head dimension.
#pragma once

#include <map>
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

/// What some decoders do to the scores of causal attention. Masks are made once for all layers.
struct ScoreRules {
  double softcap = 0;           ///< a score s becomes softcap tanh(s / softcap); 0: it stays
  int64_t window = 0;           ///< token t sees tokens t - window + 1 … t; 0: all up to t
  at::Tensor window_mask = {};  ///< where a fused kernel needs it for the window, else undefined
  at::Tensor hidden = {};       ///< hidden_tokens of capped scores; else undefined
};

/// True where token t (row) does not see token u (column): [T, T].
at::Tensor hidden_tokens(int64_t tokens, int64_t window, const at::TensorOptions& options);

/// Causal attention under these rules. Capped scores are a matrix whatever the kind: no fused
/// kernel has them.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            AttentionKind kind, const ScoreRules& rules);

/// By products that read keys and values once for all queries of a group, which are rows one after
/// the other: q [B, Hkv, G, d], hidden [B, 1, 1, T] true where no query of the sample sees a key.
at::Tensor grouped_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const ScoreRules& rules, const at::Tensor& hidden);

/// Of one query in each sample: q [B, Hq, 1, d], k and v [B, Hkv, T, d], hidden [B, 1, 1, T] true
/// where the sample's query does not see a key -> [B, Hq, 1, d]. grouped_attention in float32 or
/// wider; of `rules` the soft cap alone.
at::Tensor single_query_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const ScoreRules& rules, const at::Tensor& hidden);

/// The mask of a window for fused attention without has_flash_kernel, made once for all layers:
/// [G T, T] of `like`'s dtype and device, G = queries' heads for one key head, 0 where a token is
/// seen and -infinity elsewhere.
at::Tensor window_mask(int64_t tokens, int64_t group, int64_t window, const at::Tensor& like);

/// Heads that LibTorch's flash kernel takes.
constexpr bool is_flash_width(int64_t head_dim) {
  return head_dim % 8 == 0 && head_dim <= 256;
}
/// Whether it runs on a device and in a dtype such as these. It has windows, and where algorithms
/// must be deterministic its backward is.
bool has_flash_kernel(const at::Tensor& like, int64_t head_dim);

// Which of LibTorch's fused attention kernels runs on a GPU in 16-bit dtypes: its own flash kernel
// or cuDNN's. Neither is faster everywhere, so each shape is timed once, forward and backward, and
// the faster one is remembered (core/tuning.h).
enum class AttentionKernel { Flash, Cudnn };

/// "flash" or "cudnn".
const char* attention_kernel_name(AttentionKernel kernel);

/// Whether both kernels support such tensors: on a GPU, bfloat16 or half, d a multiple of 8 up to
/// 128.
bool attention_has_choice(const at::Tensor& q, const at::Tensor& k);

/// "attention: B 2 Hq 32 Hkv 8 T 1024 d 128 causal bfloat16".
std::string attention_key(const at::Tensor& q, const at::Tensor& k, bool causal);

/// The kernel for tensors such as these: what was set, else what is remembered, else what is faster
/// now. cuDNN is taken only where its results agree with flash's. With deterministic algorithms
/// always flash: a choice by timing would differ from run to run.
AttentionKernel attention_kernel(const at::Tensor& q, const at::Tensor& k, bool causal);

/// For this process only: overrides what is remembered and is not stored.
void set_attention_choice(const std::string& key, AttentionKernel kernel);
/// Key to name of every choice that this process has made or been given.
std::map<std::string, std::string> attention_choices();

/// Attention by that kernel. q [B, Hq, T, d], k and v [B, Hkv, T, d], strided as they are.
at::Tensor run_attention(AttentionKernel kernel, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, bool causal);

/// Causal attention over a window by the flash kernel: output as above, log-sums, and the two
/// tensors that its backward asks for.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> window_attention(const at::Tensor& q,
                                                                            const at::Tensor& k,
                                                                            const at::Tensor& v,
                                                                            int64_t window);

}  // namespace moonshard::models
