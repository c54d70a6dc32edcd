#include "runtime/models/families/decoder/decoder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/blocks/activations.h"
#include "runtime/models/blocks/checkpoint.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/param_ops.h"

// Shape letters: B samples, T tokens, D hidden_dim, H heads, d head_dim, V vocabulary.
namespace moonshard::models {
namespace {

constexpr double kInitialStd = 0.02;

void check_decoder_options(const ModelOptions& o) {
  MS_CHECK(o.head_dim % 2 == 0, "model '{}': expected an even head_dim, got {}", o.model,
           o.head_dim);
  MS_CHECK(o.num_heads % o.num_kv_heads == 0,
           "model '{}': expected num_heads to be a multiple of num_kv_heads, got {} and {}",
           o.model, o.num_heads, o.num_kv_heads);
  MS_CHECK(o.rope_scaling != "llama3" || o.rope_low_freq_factor < o.rope_high_freq_factor,
           "model '{}': expected rope_low_freq_factor below rope_high_freq_factor, got {} and {}",
           o.model, o.rope_low_freq_factor, o.rope_high_freq_factor);
  MS_CHECK(o.rope_scaling != "linear" || o.rope_factor > 0,
           "model '{}': expected rope_factor above 0 for linear scaling, got {}", o.model,
           o.rope_factor);
  MS_CHECK(o.attention_pattern.find_first_not_of("lg") == std::string::npos,
           "model '{}': expected attention_pattern of letters l (local) and g (global), got '{}'",
           o.model, o.attention_pattern);
  MS_CHECK(o.attention_window != 0 || o.attention_pattern.find('l') == std::string::npos,
           "model '{}': expected attention_window beside attention_pattern '{}', got none", o.model,
           o.attention_pattern);
  MS_CHECK(o.head_chunk == 0 || o.task == "lm",
           "model '{}': expected task lm beside head_chunk = {}, got {}, which has one position of "
           "scores; leave head_chunk out",
           o.model, o.head_chunk, o.task);
  MS_CHECK(o.last_block != "scored" || o.task == "classify",
           "model '{}': expected task classify beside last_block = scored, got {}, which scores "
           "every token; leave last_block out",
           o.model, o.task);
}

}  // namespace

RotaryOptions rotary_options(const ModelOptions& o, bool local) {
  RotaryOptions rotary;
  rotary.base = local && o.rope_local_base > 0 ? o.rope_local_base : o.rope_base;
  // A base of their own says that local layers were never stretched.
  if (local && o.rope_local_base > 0) return rotary;
  rotary.llama3_scaling = o.rope_scaling == "llama3";
  rotary.linear_scaling = o.rope_scaling == "linear";
  rotary.factor = o.rope_factor;
  rotary.low_freq_factor = o.rope_low_freq_factor;
  rotary.high_freq_factor = o.rope_high_freq_factor;
  rotary.original_length = o.rope_original_length;
  return rotary;
}

BlockParts block_parts(const std::string& block_style) {
  if (block_style == "vaultgemma") return {true, false, false};
  if (block_style == "gemma2") return {true, true, false};
  if (block_style == "gemma3") return {true, true, true};
  return {};
}

bool is_local_layer(const ModelOptions& o, int64_t layer) {
  const std::string& pattern = o.attention_pattern;
  return !pattern.empty() && pattern[static_cast<size_t>(layer) % pattern.size()] == 'l';
}

Decoder::Decoder(const ModelOptions& options)
    : Model(options),
      parts_(block_parts(options.block_style)),
      norm_scale_(parts_.gemma ? NormScale::OnePlusWeight : NormScale::Weight),
      attention_(attention_kind(options.attention)) {
  const auto& o = options_;
  check_decoder_options(o);
  embed_ =
      &add_embedding("model.embed_tokens", o.vocab_size, o.hidden_dim, kInitialStd, o.pad_token_id);
  for (int64_t i = 0; i < o.num_layers; ++i)
    blocks_.push_back(add_block(fmt::format("model.layers.{}.", i)));
  final_norm_ = add_norm("model.norm", o.hidden_dim);
  if (o.task == "classify") {
    head_ = &add_linear("score", o.hidden_dim, o.num_labels, false, kInitialStd);
    head_->one_position = true;
  } else if (o.tie_embeddings == "yes") {
    head_ = &add_tied_linear("lm_head", *embed_);
  } else {
    head_ = &add_linear("lm_head", o.hidden_dim, o.vocab_size, false, kInitialStd);
  }
  head_->by_samples = o.head_chunk > 0;
  if (o.last_block == "scored" && !blocks_.empty()) run_for_scored(blocks_.back());
}

// Either kind starts as a norm that multiplies by one.
ParamLayer* Decoder::add_norm(const std::string& name, int64_t width) {
  if (norm_scale_ == NormScale::Weight) return &add_rms_norm(name, width);
  return &add_layer(name, kinds::kRmsNorm, add_parameter(name + ".weight", {width}, 0, 0));
}

Decoder::Block Decoder::add_block(const std::string& prefix) {
  const auto& o = options_;
  const bool bias = o.qkv_bias == "yes";
  const int64_t q_dim = o.num_heads * o.head_dim, kv_dim = o.num_kv_heads * o.head_dim;
  const auto projection = [&](const char* name, int64_t in, int64_t out, bool with_bias = false) {
    return &add_linear(prefix + name, in, out, with_bias, kInitialStd);
  };
  const auto norm = [&](const char* name, int64_t width) { return add_norm(prefix + name, width); };
  begin_block();
  Block block{};
  block.input_norm = norm("input_layernorm", o.hidden_dim);
  block.q = projection("self_attn.q_proj", o.hidden_dim, q_dim, bias);
  block.k = projection("self_attn.k_proj", o.hidden_dim, kv_dim, bias);
  block.v = projection("self_attn.v_proj", o.hidden_dim, kv_dim, bias);
  block.k->same_input_as = block.v->same_input_as = block.q;
  if (parts_.qk_norms) {
    block.q_norm = norm("self_attn.q_norm", o.head_dim);
    block.k_norm = norm("self_attn.k_norm", o.head_dim);
  }
  block.o = projection("self_attn.o_proj", q_dim, o.hidden_dim);
  // Gemma's files call the norm before the MLP by what it does; in Llama's it has the name that is
  // Gemma's for the one behind the attention.
  if (parts_.post_norms) block.post_attention_norm = norm("post_attention_layernorm", o.hidden_dim);
  block.mlp_norm =
      norm(parts_.gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm", o.hidden_dim);
  block.gate = projection("mlp.gate_proj", o.hidden_dim, o.intermediate_dim);
  block.up = projection("mlp.up_proj", o.hidden_dim, o.intermediate_dim);
  block.up->same_input_as = block.gate;
  block.down = projection("mlp.down_proj", o.intermediate_dim, o.hidden_dim);
  if (parts_.post_norms) block.post_mlp_norm = norm("post_feedforward_layernorm", o.hidden_dim);
  end_block();
  return block;
}

void Decoder::run_for_scored(const Block& block) {
  block.k->same_input_as = nullptr;
  block.v->same_input_as = block.k;
  for (ParamLayer* layer :
       {block.q, block.q_norm, block.o, block.post_attention_norm, block.mlp_norm, block.gate,
        block.up, block.down, block.post_mlp_norm, final_norm_})
    if (layer != nullptr) layer->one_position = true;
}

at::Tensor Decoder::Stream::sum() const {
  return delta_BTD.defined() ? x_BTD + delta_BTD : x_BTD;
}

Decoder::Stream Decoder::Stream::in_type(at::ScalarType type) const {
  return x_BTD.scalar_type() == type ? *this : Stream{sum().to(type), {}};
}

at::Tensor Decoder::embed(const at::Tensor& ids) {
  const at::Tensor x_BTD = embedding(ids, *embed_);
  if (!parts_.gemma) return x_BTD;
  // The factor is rounded to the dtype: 34 for a width of 1152 in bfloat16.
  const at::Tensor root =
      at::scalar_tensor(std::sqrt(static_cast<double>(options_.hidden_dim)), at::kDouble);
  return x_BTD * root.to(x_BTD.scalar_type()).item<double>();
}

Decoder::Surroundings Decoder::surroundings(bool local, const at::Tensor& x_BTD) {
  const auto& o = options_;
  const int64_t T = x_BTD.size(1);
  Surroundings around;
  around.positions = rotary_table(T, o.head_dim, rotary_options(o, local), x_BTD,
                                  /*fused_allowed=*/!seam().plain_autograd);
  around.scores.softcap = std::max(o.attention_softcap, 0.0);
  if (local && o.attention_window > 0 && o.attention_window < T)
    around.scores.window = o.attention_window;
  if (around.scores.softcap > 0) {
    around.scores.hidden = hidden_tokens(T, around.scores.window, x_BTD.options());
  } else if (around.scores.window > 0 && attention_ == AttentionKind::Flash &&
             !has_flash_kernel(x_BTD, o.head_dim)) {
    around.scores.window_mask =
        window_mask(T, o.num_heads / o.num_kv_heads, o.attention_window, x_BTD);
  }
  return around;
}

RotaryTable Decoder::positions_of(const at::Tensor& tokens_B, bool local, const at::Tensor& like) {
  RotaryTable table =
      rotary_table_at(tokens_B, options_.head_dim, rotary_options(options_, local), like,
                      /*fused_allowed=*/!seam().plain_autograd);
  if (!table.fused) {  // rows of [B, H, 1, head_dim]
    for (at::Tensor* part : {&table.cosines, &table.sines})
      *part = part->view({-1, 1, 1, options_.head_dim});
  }
  return table;
}

std::vector<Decoder::Surroundings> Decoder::around_blocks(const at::Tensor& x_BTD,
                                                          const MakeSurroundings& make) const {
  std::map<std::pair<at::ScalarType, bool>, Surroundings> made;
  std::vector<Surroundings> list;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const bool local = is_local_layer(options_, static_cast<int64_t>(i));
    const at::ScalarType type = blocks_[i].input_norm->compute_type();
    const auto [known, is_new] = made.try_emplace({type, local});
    if (is_new) known->second = make(local, x_BTD.detach().to(type));
    list.push_back(known->second);
  }
  return list;
}

at::Tensor Decoder::ScoredTokens::of(const at::Tensor& x_BTD) const {
  return x_BTD.flatten(0, 1).index({places_B}).unsqueeze(1);
}

Decoder::ScoredTokens Decoder::scored_tokens(const at::Tensor& last_B, const at::Tensor& x_BTD) {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1);
  const auto last = static_cast<int64_t>(blocks_.size()) - 1;
  const bool local = is_local_layer(options_, last);
  const at::Tensor like =
      x_BTD.detach().narrow(1, 0, 1).to(blocks_.back().input_norm->compute_type());
  ScoredTokens scored;
  scored.places_B = at::arange(B, last_B.options()) * T + last_B;
  scored.positions = positions_of(last_B, local, like);
  const int64_t window = local ? std::max<int64_t>(options_.attention_window, 0) : 0;
  scored.hidden_B11T = hidden_slots(last_B, T, window);
  return scored;
}

// Attention is causal and padding is on the right, so the last real token has seen all real ones
// and no padding. Only its score is needed: the head runs on [B, D].
at::Tensor Decoder::last_tokens(const Batch& batch) {
  return batch.attention_mask.sum(-1).clamp_min(1) - 1;
}

at::Tensor Decoder::head_input(const Batch& batch) {
  Stream stream{embed(batch.input_ids), {}};
  std::vector<Surroundings> around_each = around_blocks(
      stream.x_BTD,
      [this](bool local, const at::Tensor& like) { return surroundings(local, like); });
  const bool scored_alone = options_.last_block == "scored" && !blocks_.empty();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Surroundings& around = around_each[i];
    const bool is_scored = scored_alone && i + 1 == blocks_.size();
    // Here, where the GPU is still busy with the blocks before it.
    if (is_scored) around.scored = scored_tokens(last_tokens(batch), stream.x_BTD);
    // Its backward comes first: running it again would make room for nothing.
    const Recompute recompute =
        is_scored ? Recompute::Nothing
                  : recompute_of(options_.checkpointing, options_.checkpoint_every, i);
    if (recompute == Recompute::Nothing) {
      stream = run_block(blocks_[i], stream, around);
      continue;
    }
    stream = {checkpointed(
                  seam(), recompute, trains_block(i),
                  [this, &block = blocks_[i], around](const at::Tensor& x, const at::Tensor&) {
                    return run_block(block, {x, {}}, around).sum();
                  },
                  stream.sum()),
              {}};
  }
  const at::Tensor x_BTD = normed_output(stream);
  if (options_.task == "lm") return x_BTD;
  if (scored_alone) return x_BTD.squeeze(1);
  const at::Tensor last_B = last_tokens(batch);
  return x_BTD.index({at::arange(last_B.size(0), last_B.options()), last_B});
}

at::Tensor Decoder::normed_output(const Stream& stream) const {
  const Stream last = stream.in_type(final_norm_->compute_type());
  return rms_norm_of_sum(last.x_BTD, last.delta_BTD, *final_norm_, options_.norm_eps, norm_scale_)
      .normed;
}

at::Tensor Decoder::forward(const Batch& batch) {
  const at::Tensor x = head_input(batch);
  return options_.task == "lm" ? token_scores(x) : linear(x, *head_);
}

at::Tensor Decoder::token_scores(const at::Tensor& x) {
  const at::Tensor scores = linear(x, *head_);
  return options_.logit_softcap > 0 ? soft_capped(scores, options_.logit_softcap) : scores;
}

at::Tensor Decoder::losses(const Batch& batch) {
  const at::Tensor x = head_input(batch);
  const double cap = std::max(options_.logit_softcap, 0.0);
  if (options_.task != "lm") return classification_losses(linear(x, *head_), batch.labels);
  if (options_.head_chunk > 0 && !seam().plain_autograd)
    return chunked_token_losses(x, *head_, batch.labels, options_.head_chunk, cap);
  return token_losses(seam(), linear(x, *head_), batch.labels, cap);
}

void Decoder::check(const Batch& batch) const {
  const BatchCheck fields(options_, batch);
  const bool is_lm = options_.task == "lm";
  fields.expect(batch.input_ids, "input_ids", 2, "[samples, tokens]");
  MS_CHECK(batch.input_ids.size(1) > 0,
           "model '{}': batch field 'input_ids': expected at least one token, got {}",
           options_.model, c10::str(batch.input_ids.sizes()));
  fields.expect_range(batch.input_ids, "input_ids", 0, options_.vocab_size - 1, false,
                      "check vocab_size and the data");
  fields.expect(batch.labels, "labels", is_lm ? 2 : 1, is_lm ? "[samples, tokens]" : "[samples]");
  if (is_lm) fields.expect_like_ids(batch.labels, "labels");
  fields.expect_range(batch.labels, "labels", 0,
                      (is_lm ? options_.vocab_size : options_.num_labels) - 1, is_lm,
                      is_lm ? "check vocab_size" : "check num_labels");
  const at::Tensor& mask = batch.attention_mask;
  if (is_lm && !mask.defined()) return;
  fields.expect(mask, "attention_mask", 2, "[samples, tokens]");
  fields.expect_like_ids(mask, "attention_mask");
  if (!mask.is_cpu()) return;
  MS_CHECK(mask.any(1).all().item<bool>(),
           "model '{}': batch field 'attention_mask': expected a real token in every sample, got "
           "one without any; leave that sample out",
           options_.model);
  MS_CHECK(!is_lm || !mask.logical_not().logical_and(batch.labels.ne(-100)).any().item<bool>(),
           "model '{}': batch field 'labels': expected -100 (ignored) at padding, got a label "
           "there",
           options_.model);
  const int64_t T = mask.size(1);
  if (T < 2) return;
  const at::Tensor starts_late =
      mask.narrow(1, 1, T - 1).logical_and(mask.narrow(1, 0, T - 1).logical_not());
  MS_CHECK(!starts_late.any().item<bool>(),
           "model '{}': batch field 'attention_mask': expected padding on the right, got a real "
           "token after padding; move each sample's tokens to the left",
           options_.model);
}

}  // namespace moonshard::models
