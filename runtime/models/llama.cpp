#include "runtime/models/llama.h"

#include <ATen/ATen.h>

#include "runtime/models/blocks/attention.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"

// Shape letters: B samples, T tokens, D hidden_dim, H heads, d head dimension, V vocabulary.
namespace moonshard::models {
namespace {

constexpr double kInitialStd = 0.02;
constexpr double kNormEpsilon = 1e-5;
constexpr double kRotaryBase = 500000.0;

}  // namespace

Llama::Llama(const ModelOptions& options) : Model(options) {
  const auto& o = options_;
  MS_CHECK(o.task == "classify" || o.task == "lm",
           "model '{}': expected task classify or lm, got '{}'", o.model, o.task);
  MS_CHECK(o.hidden_dim % o.num_heads == 0 && (o.hidden_dim / o.num_heads) % 2 == 0,
           "model '{}': expected hidden_dim = num_heads x an even head size, got {} and {} heads",
           o.model, o.hidden_dim, o.num_heads);
  MS_CHECK(o.num_heads % o.num_kv_heads == 0,
           "model '{}': expected num_heads to be a multiple of num_kv_heads, got {} and {}",
           o.model, o.num_heads, o.num_kv_heads);
  head_dim_ = o.hidden_dim / o.num_heads;
  const int64_t kv_dim = o.num_kv_heads * head_dim_;
  const auto projection = [&](const std::string& name, int64_t in, int64_t out) {
    return &add_linear(name, in, out, false, kInitialStd);
  };

  embed_ = &add_embedding("model.embed_tokens", o.vocab_size, o.hidden_dim, kInitialStd);
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const std::string at = fmt::format("model.layers.{}.", i);
    Block block{};
    block.input_norm = &add_rms_norm(at + "input_layernorm", o.hidden_dim);
    block.q = projection(at + "self_attn.q_proj", o.hidden_dim, o.hidden_dim);
    block.k = projection(at + "self_attn.k_proj", o.hidden_dim, kv_dim);
    block.v = projection(at + "self_attn.v_proj", o.hidden_dim, kv_dim);
    block.o = projection(at + "self_attn.o_proj", o.hidden_dim, o.hidden_dim);
    block.post_norm = &add_rms_norm(at + "post_attention_layernorm", o.hidden_dim);
    block.gate = projection(at + "mlp.gate_proj", o.hidden_dim, o.intermediate_dim);
    block.up = projection(at + "mlp.up_proj", o.hidden_dim, o.intermediate_dim);
    block.down = projection(at + "mlp.down_proj", o.intermediate_dim, o.hidden_dim);
    blocks_.push_back(block);
  }
  final_norm_ = &add_rms_norm("model.norm", o.hidden_dim);
  head_ = o.task == "lm" ? projection("lm_head", o.hidden_dim, o.vocab_size)
                         : projection("score", o.hidden_dim, o.num_labels);
}

at::Tensor Llama::forward(const Batch& batch) {
  at::Tensor x_BTD = embedding(batch.input_ids, *embed_);
  for (const Block& block : blocks_) {
    x_BTD = x_BTD + attend(block, rms_norm(x_BTD, *block.input_norm, kNormEpsilon));
    x_BTD = x_BTD + feed_forward(block, rms_norm(x_BTD, *block.post_norm, kNormEpsilon));
  }
  x_BTD = rms_norm(x_BTD, *final_norm_, kNormEpsilon);
  if (options_.task == "lm") return linear(x_BTD, *head_);
  // Attention is causal and padding is on the right, so the last real token has seen all real ones
  // and no padding. Only its score is needed: the head runs on [B, D].
  const at::Tensor last_B = batch.attention_mask.sum(-1).clamp_min(1) - 1;
  const at::Tensor rows_B = at::arange(last_B.size(0), last_B.options());
  return linear(x_BTD.index({rows_B, last_B}), *head_);
}

at::Tensor Llama::losses(const Batch& batch) {
  const at::Tensor scores = forward(batch);
  return options_.task == "lm" ? token_losses(scores, batch.labels)
                               : classification_losses(scores, batch.labels);
}

at::Tensor Llama::attend(const Block& block, const at::Tensor& x_BTD) const {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1);
  const auto heads = [&](const at::Tensor& y, int64_t count) {
    return y.view({B, T, count, head_dim_}).transpose(1, 2);
  };
  const RotaryTable positions = rotary_table(T, head_dim_, kRotaryBase, x_BTD);
  const at::Tensor q = apply_rotary(heads(linear(x_BTD, *block.q), options_.num_heads), positions);
  const at::Tensor k =
      apply_rotary(heads(linear(x_BTD, *block.k), options_.num_kv_heads), positions);
  const at::Tensor v = heads(linear(x_BTD, *block.v), options_.num_kv_heads);
  const at::Tensor y_BHTd = causal_attention(q, k, v);
  return linear(y_BHTd.transpose(1, 2).reshape({B, T, options_.hidden_dim}), *block.o);
}

at::Tensor Llama::feed_forward(const Block& block, const at::Tensor& x_BTD) const {
  const at::Tensor gate = at::silu(linear(x_BTD, *block.gate));
  return linear(gate * linear(x_BTD, *block.up), *block.down);
}

}  // namespace moonshard::models
