// One block of a decoder: attention of all tokens or of the scored ones alone, and the gated MLP.
// Shape letters as in decoder.cpp.
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "runtime/models/blocks/activations.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/families/decoder/decoder.h"

namespace moonshard::models {

Decoder::Stream Decoder::run_block(const Block& block, const Stream& given,
                                   const Surroundings& around, LayerCache* cache) const {
  const double eps = options_.norm_eps;
  const Stream stream = given.in_type(block.input_norm->compute_type());
  const AddedStream before =
      rms_norm_of_sum(stream.x_BTD, stream.delta_BTD, *block.input_norm, eps, norm_scale_);
  const at::Tensor attended =
      behind(attend(block, before.normed, around, cache), block.post_attention_norm);
  const at::Tensor passed = around.scored ? around.scored->of(before.stream) : before.stream;
  const AddedStream between = rms_norm_of_sum(passed, attended, *block.mlp_norm, eps, norm_scale_);
  return {between.stream, behind(feed_forward(block, between.normed), block.post_mlp_norm)};
}

at::Tensor Decoder::behind(const at::Tensor& branch_BTD, ParamLayer* norm) const {
  return norm == nullptr ? branch_BTD : rms_norm(branch_BTD, *norm, options_.norm_eps, norm_scale_);
}

at::Tensor Decoder::normed_heads(const at::Tensor& x_BTD, ParamLayer* norm, int64_t heads) const {
  if (norm == nullptr) return x_BTD;
  return behind(x_BTD.unflatten(2, {heads, options_.head_dim}), norm).flatten(2);
}

at::Tensor Decoder::attend(const Block& block, const at::Tensor& x_BTD, const Surroundings& around,
                           LayerCache* cache) const {
  Heads heads =
      around.scored ? scored_heads(block, x_BTD, around) : all_heads(block, x_BTD, around);
  // Kernels divide by the root of head_dim.
  const auto head_dim = static_cast<double>(options_.head_dim);
  if (options_.attention_scalar > 0 && options_.attention_scalar != head_dim)
    heads.q = heads.q * std::sqrt(head_dim / options_.attention_scalar);
  const auto& [q, k, v] = heads;
  const at::Tensor y_BHTd =
      around.scored ? single_query_attention(q, k, v, around.scores, around.scored->hidden_B11T)
      : cache == nullptr
          ? causal_attention(q, k, v, attention_, around.scores)
          : cached_attention(q, k, v, attention_, around.scores, *cache, around.slots);
  return linear(y_BHTd.transpose(1, 2).flatten(2), *block.o);
}

at::Tensor Decoder::in_heads(const at::Tensor& x_BTD, int64_t heads) const {
  return x_BTD.unflatten(2, {heads, options_.head_dim}).transpose(1, 2);
}

Decoder::Heads Decoder::all_heads(const Block& block, const at::Tensor& x_BTD,
                                  const Surroundings& around) const {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1);
  const int64_t q_heads = options_.num_heads, kv_heads = options_.num_kv_heads;
  const RotaryTable& positions = around.positions;
  std::vector<at::Tensor> qkv = linears(x_BTD, {block.q, block.k, block.v});
  at::Tensor q = normed_heads(std::exchange(qkv[0], {}), block.q_norm, q_heads);
  at::Tensor k = normed_heads(std::exchange(qkv[1], {}), block.k_norm, kv_heads);
  const at::Tensor v = in_heads(qkv[2], kv_heads);
  if (!positions.fused)
    return {apply_rotary(in_heads(q, q_heads), positions),
            apply_rotary(in_heads(k, kv_heads), positions), v};
  // One token of each row, each at a position of its own: to the kernel, B tokens of one text.
  if (around.slots.written.defined()) q = q.view({1, B, -1}), k = k.view({1, B, -1});
  const RotatedHeads turned = rotate_in_place(q, k, positions);
  return {in_heads(turned.q.view({B, T, -1}), q_heads),
          in_heads(turned.k.view({B, T, -1}), kv_heads), v};
}

Decoder::Heads Decoder::scored_heads(const Block& block, const at::Tensor& x_BTD,
                                     const Surroundings& around) const {
  const int64_t B = x_BTD.size(0), q_heads = options_.num_heads, kv_heads = options_.num_kv_heads;
  const RotaryTable &of_all = around.positions, &of_scored = around.scored->positions;
  const at::Tensor q =
      normed_heads(linear(around.scored->of(x_BTD), *block.q), block.q_norm, q_heads);
  std::vector<at::Tensor> kv = linears(x_BTD, {block.k, block.v});
  const at::Tensor k = normed_heads(std::exchange(kv[0], {}), block.k_norm, kv_heads);
  const at::Tensor v = in_heads(kv[1], kv_heads);
  if (!of_all.fused)
    return {apply_rotary(in_heads(q, q_heads), of_scored),
            apply_rotary(in_heads(k, kv_heads), of_all), v};
  return {in_heads(rotate_in_place(q.view({1, B, -1}), of_scored).view({B, 1, -1}), q_heads),
          in_heads(rotate_in_place(k, of_all), kv_heads), v};
}

at::Tensor Decoder::feed_forward(const Block& block, const at::Tensor& x_BTD) const {
  using kernels::GateFunction;
  const std::vector<at::Tensor> factors = linears(x_BTD, {block.gate, block.up});
  const at::Tensor &gate = factors[0], &up = factors[1];
  if (gating_is_fused(*block.gate->seam, gate))
    return gated_linear(gate, up, parts_.gemma ? GateFunction::GeluTanh : GateFunction::Silu,
                        *block.down);
  if (parts_.gemma) return linear(geglu(gate, up), *block.down);
  return linear(at::silu(gate) * up, *block.down);
}

}  // namespace moonshard::models
