#include "runtime/models/families/dit/dit.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/blocks/activations.h"
#include "runtime/models/blocks/checkpoint.h"
#include "runtime/models/blocks/joined_heads.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/models/blocks/norms.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/blocks/positions.h"

// Shape letters: B samples, C channels, T patches, D hidden_dim, P values of a patch, H heads, d
// head dimension.

namespace moonshard::models {
namespace {

constexpr double kEmbeddingStd = 0.02;

// The spread of Glorot and Bengio's uniform initialisation.
double xavier_std(int64_t fan_in, int64_t fan_out) {
  return std::sqrt(2.0 / static_cast<double>(fan_in + fan_out));
}

void check_dit_options(const ModelOptions& o) {
  MS_CHECK(o.image_size % o.patch_size == 0,
           "model '{}': expected image_size to be a multiple of patch_size, got {} and {}", o.model,
           o.image_size, o.patch_size);
  MS_CHECK(o.head_dim * o.num_heads == o.hidden_dim,
           "model '{}': expected num_heads x head_dim = hidden_dim, got {} x {} and {}", o.model,
           o.num_heads, o.head_dim, o.hidden_dim);
  MS_CHECK(o.positions != "sincos" || o.hidden_dim % 4 == 0,
           "model '{}': expected hidden_dim to be a multiple of 4 for positions = sincos, got {}; "
           "use positions = learned",
           o.model, o.hidden_dim);
}

}  // namespace

Dit::Dit(const ModelOptions& options)
    : Model(options), attention_(attention_kind(options.attention)) {
  const auto& o = options_;
  check_dit_options(o);
  const int64_t D = o.hidden_dim, patch_numbers = o.in_channels * o.patch_size * o.patch_size;
  side_ = o.image_size / o.patch_size;

  patches_ = &add_patch_embedding("x_embedder.proj", o.in_channels, o.patch_size, D, true,
                                  xavier_std(patch_numbers, D));
  if (o.positions == "learned") {
    positions_ = &add_position_table("pos_embed", side_ * side_, D, kEmbeddingStd);
  } else {
    fixed_positions_1TD_ = sincos_positions(
        side_, D, at::TensorOptions().dtype(seam().compute_type).device(resolve_device(o.device)));
  }
  timestep_in_ = &add_linear("t_embedder.mlp.0", kTimestepFrequencies, D, true, kEmbeddingStd);
  timestep_out_ = &add_linear("t_embedder.mlp.2", D, D, true, kEmbeddingStd);
  labels_ = &add_embedding("y_embedder.embedding_table", o.num_classes + 1, D, kEmbeddingStd);
  for (int64_t i = 0; i < o.num_layers; ++i)
    blocks_.push_back(add_block(fmt::format("blocks.{}.", i)));
  final_norm_ = add_norm("final_layer.norm_final");
  // Zeros: at the start every block is the identity and the predicted noise is 0.
  final_linear_ = &add_linear("final_layer.linear", D, patch_numbers, true, 0);
  final_modulation_ = &add_linear("final_layer.adaLN_modulation.1", D, 2 * D, true, 0);
  for (ParamLayer* layer : {timestep_in_, timestep_out_, labels_, final_modulation_})
    layer->one_position = true;
}

Dit::Block Dit::add_block(const std::string& prefix) {
  const int64_t D = options_.hidden_dim, inner = options_.intermediate_dim;
  const auto projection = [&](const char* name, int64_t in, int64_t out) {
    return &add_linear(prefix + name, in, out, true, xavier_std(in, out));
  };
  begin_block();
  Block block{};
  block.norm1 = add_norm(prefix + "norm1");
  block.qkv = projection("attn.qkv", D, 3 * D);
  block.proj = projection("attn.proj", D, D);
  block.norm2 = add_norm(prefix + "norm2");
  block.fc1 = projection("mlp.fc1", D, inner);
  block.fc2 = projection("mlp.fc2", inner, D);
  block.modulation = &add_linear(prefix + "adaLN_modulation.1", D, 6 * D, true, 0);
  block.modulation->one_position = true;
  end_block();
  return block;
}

ParamLayer* Dit::add_norm(const std::string& name) {
  return options_.norm_affine == "yes" ? &add_layer_norm(name, options_.hidden_dim) : nullptr;
}

at::Tensor Dit::forward(const Batch& batch) {
  GatedStream stream{embed(batch.inputs), {}, {}};
  const at::Tensor c_BD = condition(batch);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Recompute recompute = recompute_of(options_.checkpointing, options_.checkpoint_every, i);
    if (recompute == Recompute::Nothing) {
      stream = run_block(blocks_[i], stream, c_BD);
      continue;
    }
    const auto block = [this, &block = blocks_[i]](const at::Tensor& x, const at::Tensor& c) {
      return run_block(block, {x, {}, {}}, c).sum();
    };
    stream = {checkpointed(seam(), recompute, trains_block(i), block, stream.sum(), c_BD), {}, {}};
  }
  const auto m = linear(at::silu(c_BD), *final_modulation_).chunk(2, -1);
  stream = in_type(stream, final_modulation_->compute_type());
  const at::Tensor x_BTD =
      modulated_layer_norm(seam(), stream, final_norm_, m[0], m[1], options_.norm_eps).modulated;
  return unpatchify(linear(x_BTD, *final_linear_));
}

at::Tensor Dit::losses(const Batch& batch) {
  return regression_losses(forward(batch), batch.targets);
}

Batch Dit::prepare(const Batch& batch, const RandomWords& words, int64_t step,
                   int64_t first) const {
  Batch prepared = Model::prepare(batch, words, step, first);
  const double share = options_.label_dropout;
  if (share <= 0) return prepared;
  // Drawn on the host, so that every device drops the same labels.
  const at::Tensor drop_B = at::empty({batch.size()}, at::kBool);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const auto index = static_cast<uint64_t>(first + i);
    drop_B.data_ptr<bool>()[i] =
        words.uniform(static_cast<uint32_t>(step), kernels::kPurposeData | 1u, index) < share;
  }
  prepared.labels =
      batch.labels.masked_fill(drop_B.to(batch.labels.device()), options_.num_classes);
  return prepared;
}

void Dit::check(const Batch& batch) const {
  const BatchCheck fields(options_, batch);
  fields.expect(batch.inputs, "inputs", 4, "[samples, channels, height, width]");
  fields.expect_like_inputs(batch.targets);
  fields.expect(batch.labels, "labels", 1, "[samples]");
  fields.expect(batch.timesteps, "timesteps", 1, "[samples]");
  fields.expect_range(batch.labels, "labels", 0, options_.num_classes, false,
                      "check num_classes; that number itself is the null class");
  fields.expect_range(batch.timesteps, "timesteps", 0, kDiffusionSteps - 1, false,
                      "diffusion has 1000 steps");
}

int64_t Dit::count_tokens(const Batch& batch) const {
  const int64_t patch = options_.patch_size;
  return batch.inputs.size(0) * (batch.inputs.size(2) / patch) * (batch.inputs.size(3) / patch);
}

at::Tensor Dit::embed(const at::Tensor& images) {
  MS_CHECK(images.dim() == 4 && images.size(2) == options_.image_size &&
               images.size(3) == options_.image_size,
           "model '{}': expected inputs [B, {}, {}, {}], got {}; check image_size", options_.model,
           options_.in_channels, options_.image_size, options_.image_size,
           c10::str(images.sizes()));
  const at::Tensor x_BTD = patch_embedding(images, *patches_);
  return positions_ != nullptr ? add_positions(x_BTD, *positions_)
                               : x_BTD + fixed_positions_1TD_.to(x_BTD.scalar_type());
}

at::Tensor Dit::condition(const Batch& batch) {
  const at::Tensor features = timestep_features(batch.timesteps, timestep_in_->compute_type());
  const at::Tensor t_BD = linear(at::silu(linear(features, *timestep_in_)), *timestep_out_);
  return t_BD + embedding(batch.labels, *labels_);
}

GatedStream Dit::run_block(const Block& block, const GatedStream& before,
                           const at::Tensor& c_BD) const {
  const Seam& seam = *block.qkv->seam;
  const double eps = options_.norm_eps;
  const at::ScalarType type = block.qkv->compute_type();
  const GatedStream stream = in_type(before, type);
  // shift, scale and gate of the attention, then of the MLP.
  const auto m = linear(at::silu(c_BD.to(type)), *block.modulation).chunk(6, -1);
  const ModulatedStream first = modulated_layer_norm(seam, stream, block.norm1, m[0], m[1], eps);
  const GatedStream between{first.stream, attend(block, first.modulated), m[2]};
  const ModulatedStream second = modulated_layer_norm(seam, between, block.norm2, m[3], m[4], eps);
  const at::Tensor inner = gelu_tanh(seam, linear(second.modulated, *block.fc1));
  const GatedStream after{second.stream, linear(inner, *block.fc2), m[5]};
  return layer_norm_is_fused(seam, stream.x) ? after : GatedStream{after.sum(), {}, {}};
}

at::Tensor Dit::attend(const Block& block, const at::Tensor& x_BTD) const {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1), D = x_BTD.size(2);
  const auto qkv = heads_of(linear(x_BTD, *block.qkv), options_.num_heads, options_.head_dim);
  const at::Tensor y_BHTd = attention(qkv[0], qkv[1], qkv[2], /*causal=*/false, attention_);
  return linear(y_BHTd.transpose(1, 2).reshape({B, T, D}), *block.proj);
}

at::Tensor Dit::unpatchify(const at::Tensor& x_BTP) const {
  const int64_t p = options_.patch_size, C = options_.in_channels;
  return x_BTP.reshape({-1, side_, side_, p, p, C})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({-1, C, side_ * p, side_ * p});
}

const at::Tensor& remaining_signal() {
  static const at::Tensor signal =
      (1.0 - at::linspace(1e-4, 0.02, kDiffusionSteps, at::kDouble)).cumprod(0);
  return signal;
}

at::Tensor add_diffusion_noise(const at::Tensor& images, const at::Tensor& noise,
                               const at::Tensor& timesteps) {
  const at::Tensor signal_B111 =
      remaining_signal().to(timesteps.device()).index({timesteps}).view({-1, 1, 1, 1});
  const auto type = images.scalar_type();
  return signal_B111.sqrt().to(type) * images + (1 - signal_B111).sqrt().to(type) * noise;
}

}  // namespace moonshard::models
