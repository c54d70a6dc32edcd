// The family of diffusion transformers: presets, batches, cost (letters of model_cost.h) and
// config.json, whose model_type and keys are our own.
#include <algorithm>

#include <ATen/ATen.h>

#include "runtime/core/device.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/config_object.h"
#include "runtime/models/families/dit/dit.h"
#include "runtime/models/family.h"
#include "runtime/models/model_cost.h"

namespace moonshard::models {
namespace {

struct DitSizes {
  int64_t width = 0, layers = 0, heads = 0, image = 0, patch = 0, channels = 0, classes = 0;
};

Preset dit_preset(const char* name, const DitSizes& sizes, const char* positions, const char* doc) {
  ModelOptions o;
  o.model = name;
  o.task = "denoise";
  o.hidden_dim = sizes.width;
  o.intermediate_dim = 4 * sizes.width;
  o.num_layers = sizes.layers;
  o.num_heads = sizes.heads;
  o.image_size = sizes.image;
  o.patch_size = sizes.patch;
  o.in_channels = sizes.channels;
  o.num_classes = sizes.classes;
  o.positions = positions;
  o.norm_affine = "no";
  o.norm_eps = 1e-6;
  o.label_dropout = 0.1;
  const int64_t side = sizes.patch > 0 ? sizes.image / sizes.patch : 0;
  return {o, 2, side * side, doc, sizes.width > 0, nullptr};
}

// Images stay in float32 or wider: the model casts what it computes with, and small timesteps
// change an image by less than bfloat16 can tell.
at::ScalarType image_type(const ModelOptions& o) {
  return dtype_from_name(o.dtype) == at::kDouble ? at::kDouble : at::kFloat;
}

class DitFamily : public Family {
 public:
  DitFamily() : Family(description_of<DitEntry>()) {}

  std::vector<Preset> presets() const override {
    return {
        dit_preset("dit-l/8", {1024, 24, 16, 256, 8, 3, 1000}, "learned",
                   "DiT-L on 256-pixel images, patch 8"),
        dit_preset("dit-xl/2", {1152, 28, 16, 32, 2, 4, 1000}, "sincos",
                   "DiT-XL on latents of 256-pixel images, patch 2"),
        dit_preset("dit-tiny", {64, 2, 4, 32, 4, 3, 10}, "learned",
                   "DiT on 32-pixel images, for a CPU"),
        dit_preset("dit-xl-tiny", {64, 2, 4, 16, 2, 4, 10}, "sincos",
                   "DiT on 16 x 16 latents, for a CPU"),
        dit_preset("dit", {}, "sincos", "diffusion transformer of the sizes given"),
    };
  }

  // "dit-xl-2-256" -> "dit-xl/2".
  std::string preset_of_hub_name(const std::string& name) const override {
    const std::string latents_of_256 = "-2-256";
    if (!name.ends_with(latents_of_256)) return name;
    return name.substr(0, name.size() - latents_of_256.size()) + "/2";
  }

  std::string hub_name_of_preset(const std::string& preset) const override {
    return preset == "dit-xl/2" ? "facebook/DiT-XL-2-256" : "";
  }

  void complete(ModelOptions& o, const ModelOptions&) const override { complete_head_dim(o, 1); }

  std::unique_ptr<Model> build(const ModelOptions& o) const override {
    return std::make_unique<Dit>(o);
  }

  // The patches of an image, whatever was asked for.
  int64_t seq_length(const ModelOptions& o, int64_t) const override {
    const int64_t side = o.image_size / o.patch_size;
    return side * side;
  }

  Batch synthetic_batch(const ModelOptions& o, int64_t batch_size, int64_t,
                        BatchDraws& draws) const override {
    const auto [images, noise] =
        draws.two_normals({batch_size, o.in_channels, o.image_size, o.image_size}, image_type(o));
    Batch batch;
    batch.timesteps = draws.ids(kDiffusionSteps, {batch_size});
    batch.labels = draws.ids(o.num_classes, {batch_size});
    batch.inputs = add_diffusion_noise(images, noise, batch.timesteps);
    batch.targets = noise;
    return batch;
  }

  int64_t batch_bytes(const ModelOptions& o, int64_t batch_size, int64_t) const override {
    const auto size = static_cast<int64_t>(c10::elementSize(image_type(o)));
    const int64_t pixels = o.in_channels * o.image_size * o.image_size;
    return 2 * batch_size * (pixels * size + 8);  // images and noise; timesteps and labels
  }

  double flops_per_token(const ModelOptions& o, int64_t tokens) const override {
    const double D = static_cast<double>(o.hidden_dim), I = static_cast<double>(o.intermediate_dim),
                 L = static_cast<double>(o.num_layers), T = static_cast<double>(tokens),
                 Q = static_cast<double>(o.num_heads * o.head_dim);
    const double P = static_cast<double>(o.in_channels * o.patch_size * o.patch_size);
    const double per_sample = (256 + D) * D + L * 6 * D * D + 2 * D * D;
    const double weights = L * (4 * D * D + 2 * D * I) + 2 * P * D + per_sample / T;
    return 6 * weights + 12 * L * T * Q;
  }

  // A block keeps: twice a norm's input (D), its statistics, its output (D) and the modulated
  // output (D, input of a projection); q, k and v (3 D), the attention's output (D); input and
  // output of gelu (2 I); outputs of both branches before their gates (2 D). Backward holds
  // gradients before and after gelu while one saved I is gone, and the stream's twice. First layers
  // keep the patches (P); the last norm is like the others; the loss keeps the difference (P w) and
  // its backward adds four of that size.
  //
  // Fused, a norm and its modulation are one step: its output before the modulation is not kept.
  ActivationBytes activation_bytes(const ModelOptions& o, const CostDtypes& f,
                                   int64_t T) const override {
    const int64_t D = o.hidden_dim, I = o.intermediate_dim;
    const int64_t P = o.in_channels * o.patch_size * o.patch_size;
    const int64_t statistics = (o.norm_affine == "yes" && !f.fused ? 1 : 2) * f.w;
    const int64_t norm = f.fused ? 2 : 3;
    ActivationBytes a;
    a.block = f.s * (2 * norm * D + 6 * D + 2 * I) + 2 * statistics +
              attention_statistics(o, f, T, false);
    a.block_input = f.s * D;
    a.attention_output = f.s * D + 4 * o.num_heads;
    a.block_working = std::max(f.s * (I + 2 * D), attention_working(o, f, T) + f.s * 2 * D);
    a.outside = f.s * (norm * D + P) + statistics + f.w * P;
    a.head_working = 4 * f.w * P;
    a.batch = 2 * f.w * P;
    return a;
  }

  std::vector<std::string> config_types() const override { return {"dit"}; }

  ModelOptions read_config(const ConfigObject& config) const override {
    ModelOptions o;
    o.model = "dit";
    o.task = "denoise";
    read_transformer_sizes(config, o);
    if (o.hidden_dim % o.num_heads != 0)
      config.fail("hidden_size", fmt::format("a multiple of {} heads", o.num_heads));
    o.head_dim = o.hidden_dim / o.num_heads;
    o.intermediate_dim = config.integer("intermediate_size", 1, 10'000'000);
    o.image_size = config.integer("image_size", 1, 100'000);
    o.patch_size = config.integer("patch_size", 1, 10'000);
    if (o.image_size % o.patch_size != 0)
      config.fail("image_size", fmt::format("a multiple of patch_size {}", o.patch_size));
    o.in_channels = config.integer("in_channels", 1, 10'000);
    o.num_classes = config.integer("num_classes", 1, 10'000'000);
    o.positions = config.text_or("positions", "sincos");
    if (o.positions != "sincos" && o.positions != "learned")
      config.fail("positions", "learned or sincos");
    o.norm_affine = config.boolean_or("norm_affine", false) ? "yes" : "no";
    o.norm_eps = config.number_or("layer_norm_eps", 1e-30, 1, o.norm_eps);
    o.label_dropout = config.number_or("label_dropout", 0, 1, o.label_dropout);
    return o;
  }

  Json write_config(const ModelOptions& o) const override {
    return {{"model_type", "dit"},
            {"hidden_size", o.hidden_dim},
            {"intermediate_size", o.intermediate_dim},
            {"num_hidden_layers", o.num_layers},
            {"num_attention_heads", o.num_heads},
            {"image_size", o.image_size},
            {"patch_size", o.patch_size},
            {"in_channels", o.in_channels},
            {"num_classes", o.num_classes},
            {"positions", o.positions},
            {"norm_affine", o.norm_affine == "yes"},
            {"layer_norm_eps", o.norm_eps},
            {"label_dropout", o.label_dropout}};
  }

  void shrink(ModelOptions& o) const override {
    o.hidden_dim = 24;
    o.intermediate_dim = 36;
    for (const Preset& preset : presets()) {
      if (preset.sizes.model == o.model) o.image_size = 3 * preset.sizes.patch_size;
    }
  }

  std::string frozen_example() const override { return "blocks.0.*,x_embedder.proj.bias"; }
  std::string second_block_example() const override { return "blocks.1.*"; }
};

}  // namespace

std::unique_ptr<Family> DitEntry::make() {
  return std::make_unique<DitFamily>();
}

}  // namespace moonshard::models
