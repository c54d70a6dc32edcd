#include "runtime/models/model_cost.h"

#include <algorithm>

#include <c10/core/ScalarType.h>

#include "runtime/core/device.h"
#include "runtime/models/registry.h"

// Letters: T tokens of a sample, D hidden_dim, I intermediate_dim, H heads, Q = H x head_dim, K =
// num_kv_heads x head_dim, V vocabulary, P numbers of a patch; s bytes of a number in the format of
// the computation, w bytes of a statistic (float32 or wider).
namespace moonshard::models {
namespace {

struct Formats {
  int64_t s, w;
  bool casts_weights, fused;
};

Formats formats_of(const ModelOptions& o, LayerForm form) {
  const int64_t s = static_cast<int64_t>(c10::elementSize(dtype_from_name(o.param_dtype)));
  return {s, std::max<int64_t>(s, 4), o.param_dtype != o.dtype, form == LayerForm::Fused};
}

// ---- arithmetic -------------------------------------------------------------------------------

// A weight that a token passes through costs a multiplication and an addition forward, and twice
// that backward (gradients of the input and of the weight): 6 FLOPs. Attention multiplies T x Q
// numbers twice forward (scores, then values) and twice as much backward: 12 T Q per token and
// layer; a causal one needs half. What a sample does once is shared by its T tokens. Norms,
// activations and the optimizer are left out: they are bound by memory, not by arithmetic.
double flops_per_token(const ModelOptions& o, Family family, int64_t tokens) {
  const double D = static_cast<double>(o.hidden_dim), I = static_cast<double>(o.intermediate_dim),
               L = static_cast<double>(o.num_layers), T = static_cast<double>(tokens),
               Q = static_cast<double>(o.num_heads * o.head_dim),
               K = static_cast<double>(o.num_kv_heads * o.head_dim);
  if (family == Family::Linear) return 6 * L * D * D;
  if (family == Family::Decoder) {
    const double head = o.task == "lm" ? D * static_cast<double>(o.vocab_size)
                                       : D * static_cast<double>(o.num_labels) / T;
    const double weights = L * (2 * D * Q + 2 * D * K + 3 * D * I) + head;
    return 6 * weights + 0.5 * 12 * L * T * Q;
  }
  const double P = static_cast<double>(o.in_channels * o.patch_size * o.patch_size);
  const double per_sample = (256 + D) * D + L * 6 * D * D + 2 * D * D;
  const double weights = L * (4 * D * D + 2 * D * I) + 2 * P * D + per_sample / T;
  return 6 * weights + 12 * L * T * Q;
}

// ---- memory -----------------------------------------------------------------------------------

/// Bytes per token.
struct Activations {
  int64_t block = 0;          ///< what one block keeps for backward
  int64_t block_input = 0;    ///< what it keeps when it is recomputed
  int64_t block_working = 0;  ///< gradients of activations that its backward holds at once
  int64_t outside = 0;        ///< kept by the first layers, the last norm, the head and the loss
  int64_t head_working = 0;   ///< more than `outside` while the loss and the head run
  int64_t batch = 0;          ///< the batch itself
};

// The weights of "standard" attention: softmax keeps its result in w, the product with the values
// keeps it in s (the same tensor when the formats agree); a causal one keeps its mask. Fused
// attention keeps one number per head and row instead.
int64_t attention_statistics(const ModelOptions& o, const Formats& f, int64_t T, bool causal) {
  if (o.attention == "flash") return o.num_heads * f.w;
  return o.num_heads * T * (f.w + (f.s != f.w ? f.s : 0)) + (causal ? T : 0);
}

// While "standard" attention runs backward: gradients of weights and of scores.
int64_t attention_working(const ModelOptions& o, const Formats& f, int64_t T) {
  return o.attention == "flash" ? 0 : 2 * o.num_heads * T * f.w;
}

// A decoder's block keeps: twice a norm's input (D), its spread (w) and its output (D, input of the
// projections); rotated q (Q) and k (K), v (K), the attention's output (Q); outputs of gate and up,
// silu(gate) and their product (4 I). Backward of the product holds three gradients of I while one
// saved I is gone, and the gradient of the stream twice.
// Head of lm: the last norm (2 D + w), log-probabilities (V w); the loss's backward adds two
// gradients of V. Head of classify: the last norm; index's backward makes the stream once more.
//
// Fused, silu(gate) is not kept (3 I), and backward of the product writes one of its two gradients
// over the one it is given. The lm head keeps its scores as they are (V s) and one number per row;
// their gradient takes their place. The attention that a GPU has for float32 knows no groups: keys
// and values are repeated for it.
Activations decoder_activations(const ModelOptions& o, const Formats& f, int64_t T) {
  const int64_t D = o.hidden_dim, I = o.intermediate_dim, V = o.vocab_size;
  const int64_t Q = o.num_heads * o.head_dim, K = o.num_kv_heads * o.head_dim;
  const bool repeats = f.fused && f.s >= 4 && o.attention == "flash";
  const int64_t inner = f.fused ? 3 : 4, inner_working = f.fused ? 1 : 2;
  Activations a;
  a.block = f.s * (4 * D + 2 * Q + 2 * (repeats ? Q : K) + inner * I) + 2 * f.w +
            attention_statistics(o, f, T, true);
  a.block_input = f.s * D;
  a.block_working =
      std::max(f.s * (inner_working * I + 2 * D), attention_working(o, f, T) + f.s * 2 * D);
  const int64_t rotary = f.fused ? f.w * o.head_dim : 2 * f.s * o.head_dim;  // half-tables, wide
  a.outside = f.s * 2 * D + f.w + rotary;
  a.head_working = f.s * 2 * D;
  a.batch = 8 + 1;  // ids, mask
  if (o.task == "lm") {
    a.batch += 8;
    a.outside += f.fused ? f.s * V + f.w : f.w * V;
    if (!f.fused) a.head_working = 2 * f.w * V;
  }
  return a;
}

// A DiT's block keeps: twice a norm's input (D), its statistics, its output (D) and the modulated
// output (D, input of a projection); q, k and v (3 D), the attention's output (D); input and output
// of gelu (2 I); outputs of both branches before their gates (2 D). Backward holds gradients before
// and after gelu while one saved I is gone, and the stream's twice.
// First layers keep the patches (P); the last norm is like the others; the loss keeps the
// difference (P w) and its backward adds two of that size.
//
// Fused, a norm and its modulation are one step: its output before the modulation is not kept.
Activations dit_activations(const ModelOptions& o, const Formats& f, int64_t T) {
  const int64_t D = o.hidden_dim, I = o.intermediate_dim;
  const int64_t P = o.in_channels * o.patch_size * o.patch_size;
  const int64_t statistics = (o.norm_affine == "yes" && !f.fused ? 1 : 2) * f.w;
  const int64_t norm = f.fused ? 2 : 3;
  Activations a;
  a.block =
      f.s * (2 * norm * D + 6 * D + 2 * I) + 2 * statistics + attention_statistics(o, f, T, false);
  a.block_input = f.s * D;
  a.block_working = std::max(f.s * (I + 2 * D), attention_working(o, f, T) + f.s * 2 * D);
  a.outside = f.s * (norm * D + P) + statistics + f.w * P;
  a.head_working = 2 * f.w * P;
  a.batch = 2 * f.w * P;
  return a;
}

Activations linear_activations(const ModelOptions& o, const Formats& f) {
  Activations a;
  a.block = a.block_input = f.s * o.hidden_dim;
  a.block_working = 2 * f.s * o.hidden_dim;
  a.outside = f.w * o.hidden_dim;  // the difference
  a.head_working = 2 * f.w * o.hidden_dim;
  a.batch = 2 * f.s * o.hidden_dim;
  return a;
}

Activations activations_of(const ModelOptions& o, Family family, const Formats& f, int64_t T) {
  switch (family) {
    case Family::Linear:
      return linear_activations(o, f);
    case Family::Decoder:
      return decoder_activations(o, f, T);
    case Family::Dit:
      return dit_activations(o, f, T);
  }
  return {};
}

struct ParameterSizes {
  int64_t block_gradient_bytes = 0;  ///< of one block
  int64_t gradient_bytes = 0;
  int64_t head_gradient_bytes = 0;  ///< of a language model's head, tied or not
  int64_t largest = 0;              ///< numbers of the largest weight
};

ParameterSizes measure(const Model& model) {
  ParameterSizes sizes;
  for (const auto& parameter : model.parameters()) {
    const int64_t count = parameter->value.numel();
    sizes.largest = std::max(sizes.largest, count);
    if (!parameter->trainable) continue;
    const int64_t bytes =
        count * std::max<int64_t>(4, static_cast<int64_t>(parameter->value.element_size()));
    sizes.gradient_bytes += bytes;
    if (parameter->name == "lm_head.weight" ||
        (model.options().tie_embeddings == "yes" && parameter->name == "model.embed_tokens.weight"))
      sizes.head_gradient_bytes = bytes;
    for (const char* prefix : {"model.layers.0.", "blocks.0.", "layers.0."}) {
      if (parameter->name.rfind(prefix, 0) == 0) sizes.block_gradient_bytes += bytes;
    }
  }
  return sizes;
}

// Follows the backward pass from the head to the first block and takes the most that lives at once:
// the weights, what is still kept, the gradients so far, and what the layer at work needs.
int64_t peak_of(const ModelOptions& o, const Activations& a, int64_t rows, int64_t parameter_bytes,
                const ParameterSizes& sizes, LayerForm form) {
  const auto recomputed = [&o](int64_t i) {
    return o.checkpointing == "block" && i % o.checkpoint_every == 0;
  };
  int64_t kept = rows * (a.batch + a.outside);
  for (int64_t i = 0; i < o.num_layers; ++i)
    kept += rows * (recomputed(i) ? a.block_input : a.block);
  int64_t gradients = 0, peak = kept + rows * a.head_working;
  // The gradient of the scores lies where they lay until the head's own gradient is formed. In the
  // plain form more of that size is gone by then.
  if (form == LayerForm::Fused && o.task == "lm") peak += sizes.head_gradient_bytes;
  kept -= rows * a.outside;
  // The head's weights are not in a block; where the others are (embeddings), their gradients come
  // last. Counting all of them here errs by the embeddings alone.
  gradients += sizes.gradient_bytes - o.num_layers * sizes.block_gradient_bytes;
  for (int64_t i = o.num_layers - 1; i >= 0; --i) {
    const int64_t again = recomputed(i) ? a.block : 0;
    gradients += sizes.block_gradient_bytes;
    peak = std::max(peak, kept + gradients + rows * (again + a.block_working));
    kept -= rows * (recomputed(i) ? a.block_input : a.block);
  }
  return parameter_bytes + peak;
}

}  // namespace

LayerForm layer_form(const ModelOptions& options) {
  const std::string& format = options.param_dtype == "auto" ? options.dtype : options.param_dtype;
  const bool known = format == "float32" || format == "bfloat16";
  return known && options.device.rfind("cuda", 0) == 0 ? LayerForm::Fused : LayerForm::Plain;
}

ModelCost model_cost(const ModelOptions& options, int64_t batch_size, int64_t seq_length,
                     LayerForm form) {
  ModelOptions shapes = options;
  shapes.device = "meta";
  const auto model = make_model(shapes);
  const ModelOptions& o = model->options();
  const Family family = find_preset(o.model).family;
  const int64_t tokens = tokens_per_sample(o, seq_length), rows = batch_size * tokens;
  const Formats formats = formats_of(o, form);
  const Activations a = activations_of(o, family, formats, tokens);
  const ParameterSizes sizes = measure(*model);

  ModelCost cost;
  cost.num_parameters = model->num_parameters();
  cost.flops_per_token = flops_per_token(o, family, tokens);
  cost.parameter_bytes = model->parameter_bytes();
  cost.gradient_bytes = sizes.gradient_bytes;
  cost.activation_bytes = rows * (a.batch + a.outside);
  for (int64_t i = 0; i < o.num_layers; ++i) {
    const bool recomputed = o.checkpointing == "block" && i % o.checkpoint_every == 0;
    cost.activation_bytes += rows * (recomputed ? a.block_input : a.block);
  }
  cost.peak_bytes = peak_of(o, a, rows, cost.parameter_bytes, sizes, form);
  // Weights kept in another format than that of the computation: one cast weight at a time.
  if (formats.casts_weights) cost.peak_bytes += formats.s * sizes.largest;
  return cost;
}

}  // namespace moonshard::models
