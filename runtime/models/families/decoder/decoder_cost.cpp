#include "runtime/models/families/decoder/decoder_cost.h"

#include <algorithm>

#include "runtime/models/families/decoder/decoder.h"

namespace moonshard::models {
namespace {

bool has_window(const ModelOptions& o, int64_t T) {
  return o.attention_window > 0 && o.attention_window < T;
}

int64_t count_local(const ModelOptions& o) {
  int64_t count = 0;
  for (int64_t i = 0; i < o.num_layers; ++i) count += is_local_layer(o, i);
  return count;
}

// Keys that a token of a layer sees on average, as half of T is for a causal one.
double seen_keys(const ModelOptions& o, int64_t tokens, bool local) {
  const double T = static_cast<double>(tokens);
  if (!local || !has_window(o, tokens)) return T / 2;
  const double W = static_cast<double>(o.attention_window);
  return W - W * W / (2 * T);
}

// A last block that runs for the scored token keeps of every token its first norm (2 D, w), which
// keys and values read, these in float32 or wider (2 K w) and the weights of one query (H w, and a
// tanh more where they are capped). Backward makes the gradient of the stream, wide ones of keys
// and values, then those of the norm's output, for the query and for the rest. Of the scored token
// it keeps what a block does, and the last norm.
LastBlockBytes last_block_bytes(const ModelOptions& o, const CostDtypes& f) {
  const BlockParts parts = block_parts(o.block_style);
  const int64_t D = o.hidden_dim, H = o.num_heads, Q = H * o.head_dim;
  const int64_t K = o.num_kv_heads * o.head_dim, inner = (f.fused ? 2 : 4) * o.intermediate_dim;
  LastBlockBytes last;
  last.kept = f.s * 2 * D + f.w * (1 + 2 * K + (o.attention_softcap > 0 ? 2 : 1) * H) + 1;
  if (parts.qk_norms) last.kept += f.s * K + f.w * o.num_kv_heads;
  last.of_sample = f.s * (5 * D + 2 * Q + inner) + 2 * f.w;
  if (parts.post_norms) last.of_sample += 2 * (f.s * D + f.w);
  if (parts.qk_norms) last.of_sample += f.s * Q + f.w * H;
  last.of_attention = f.s * D + f.w * 2 * K;
  // A norm's plain operations hold more.
  last.in_forward = f.fused ? 0 : f.s * 5 * D;
  last.of_norm = f.fused ? f.s * 3 * D + f.w * 2 * K : f.s * 7 * D;
  last.gone = f.fused ? f.w * (2 * K + H) : last.kept - f.s * D - f.w;
  return last;
}

}  // namespace

double decoder_flops_per_token(const ModelOptions& o, int64_t tokens) {
  const double D = static_cast<double>(o.hidden_dim), I = static_cast<double>(o.intermediate_dim),
               L = static_cast<double>(o.num_layers), T = static_cast<double>(tokens),
               Q = static_cast<double>(o.num_heads * o.head_dim),
               K = static_cast<double>(o.num_kv_heads * o.head_dim);
  const double head = o.task == "lm" ? D * static_cast<double>(o.vocab_size)
                                     : D * static_cast<double>(o.num_labels) / T;
  const double block = 2 * D * Q + 2 * D * K + 3 * D * I;
  const double local = static_cast<double>(count_local(o));
  const double keys =
      local * seen_keys(o, tokens, true) + (L - local) * seen_keys(o, tokens, false);
  const double flops = 6 * (L * block + head) + 12 * keys * Q;
  if (o.last_block != "scored" || o.num_layers == 0) return flops;
  // Keys and values are of all tokens; the rest is for one of T, which sees all keys.
  const bool is_local = is_local_layer(o, o.num_layers - 1);
  const double window = static_cast<double>(o.attention_window);
  const double seen = is_local && has_window(o, tokens) ? window : T;
  return flops - 6 * (block - 2 * D * K) * (1 - 1 / T) -
         12 * (seen_keys(o, tokens, is_local) - seen / T) * Q;
}

// A block keeps: twice a norm's input (D), its spread (w) and its output (D, input of the
// projections); rotated q (Q) and k (K), v (K), the attention's output (Q); outputs of gate and
// up, silu(gate) and their product (4 I). Backward of the product holds three gradients of I
// while one saved I is gone, and the gradient of the stream twice. Head of lm: the last norm (2 D
// + w), log-probabilities (V w); the loss's backward adds two gradients of V. Head of classify:
// the last norm; index's backward makes the stream once more.
//
// Fused, gate and up alone are kept (2 I); backward writes their product and one gradient over them
// and the other over the product's. The lm head keeps its scores as they are (V s)
// and one number per row; their gradient takes their place and lies there until the head's own
// gradient is formed (in the plain form more of that size is gone by then). The attention that a
// GPU has for float32 does not support groups: keys and values are repeated for it.
//
// Of Gemma: norms behind the branches keep their input (D) and a spread each; norms of heads those
// of q and k. Capped scores are a matrix whatever the
// option says, and a tanh more. Masks are made once for all layers and samples. Local layers whose
// window is a mask (not on a GPU in 16 bits, whose kernel has windows) keep the attention's output
// twice (Q), as its heads are in another order there, and it is run again with the rest of a block.
// Capped logits keep a tanh (V s), but not where they are fused.
//
// A head in chunks keeps one number per row. A chunk's scores are there once (their gradient takes
// their place); in the plain form with two wide tensors of that size, capped with four.
ActivationBytes decoder_activation_bytes(const ModelOptions& o, const CostDtypes& f, int64_t T) {
  const BlockParts parts = block_parts(o.block_style);
  const int64_t D = o.hidden_dim, I = o.intermediate_dim, V = o.vocab_size;
  const int64_t Q = o.num_heads * o.head_dim, K = o.num_kv_heads * o.head_dim;
  const bool capped = o.attention_softcap > 0, local = count_local(o) > 0;
  const bool windowed = local && has_window(o, T) && !capped && o.attention == "flash";
  const bool masked = windowed && !(f.fused && f.s < 4 && is_flash_width(o.head_dim));
  ModelOptions shown = o;  // as the attention really runs
  if (capped) shown.attention = "standard";
  const bool repeats = f.fused && f.s >= 4 && shown.attention == "flash";
  const int64_t inner = f.fused ? 2 : 4, inner_working = f.fused ? 1 : 2;
  ActivationBytes a;
  a.block = f.s * (4 * D + 2 * Q + 2 * (repeats ? Q : K) + inner * I) + 2 * f.w +
            attention_statistics(shown, f, T, !capped);
  if (parts.post_norms) a.block += 2 * (f.s * D + f.w);
  if (parts.qk_norms) a.block += f.s * (Q + K) + f.w * (o.num_heads + o.num_kv_heads);
  if (capped) a.block += f.s * o.num_heads * T;
  if (masked) a.block += f.s * Q * count_local(o) / o.num_layers;
  const double share = static_cast<double>(count_local(o)) / static_cast<double>(o.num_layers);
  if (masked) a.masked = share;
  if (windowed && !masked) {
    a.windowed = share;
    a.window_scores = seen_keys(o, T, true) / seen_keys(o, T, false);
  }
  a.block_input = f.s * D;
  a.attention_output = capped ? 0 : (f.s * o.head_dim + 4) * o.num_heads;
  if (masked) a.attention_output -= a.attention_output * count_local(o) / o.num_layers;
  // When attention's backward runs, what the MLP kept (inner I and its norm) is gone.
  a.block_working = std::max(f.s * (inner_working * I + 2 * D),
                             attention_working(shown, f, T) - f.s * inner * I - f.w);
  const int64_t rotary = f.fused ? f.w * o.head_dim : 2 * f.s * o.head_dim;  // half-tables, wide
  a.outside = f.s * 2 * D + f.w + rotary * (local ? 2 : 1);
  a.head_working = f.s * 2 * D;
  a.batch = 8 + 1;  // ids, mask
  if (o.last_block == "scored" && o.num_layers > 0) {
    a.last_block = last_block_bytes(o, f);
    a.outside -= f.s * 2 * D + f.w;
    a.head_working = 0;
  }
  if (capped) a.shared = (local ? 2 : 1) * T * T;
  if (masked) a.shared = f.s * (o.num_heads / o.num_kv_heads) * T * T;
  if (o.task != "lm") return a;
  a.batch += 8;
  if (o.head_chunk > 0) {
    const int64_t plain = o.logit_softcap > 0 ? 4 : 2;
    a.outside += f.w;
    a.head_layer = "lm_head";
    a.chunk = std::min(o.head_chunk, T) * V * (f.s + (f.fused ? 0 : plain * f.w));
    return a;
  }
  a.outside += f.fused ? f.s * V + f.w : f.w * V;
  if (o.logit_softcap > 0 && !f.fused) a.outside += f.s * V;
  if (f.fused) {
    a.head_layer = "lm_head";
  } else {
    a.head_working = 2 * f.w * V;
  }
  return a;
}

}  // namespace moonshard::models
