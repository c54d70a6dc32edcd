// Options of diffusion transformers. Torch-free.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/models/family_description.h"

namespace moonshard::models {

struct DitOptions {
  int64_t image_size = 0;
  int64_t patch_size = 0;
  int64_t in_channels = 0;
  int64_t num_classes = 0;
  std::string positions = "auto";
  std::string norm_affine = "auto";
  double label_dropout = -1;
};

struct DitEntry {
  using Options = DitOptions;

  static FamilyDescription describe() {
    return {"dit",
            {{"denoise", "an image's noise", {"labels", "inputs", "targets", "timesteps"}}},
            {"attention", "checkpointing", "checkpoint_every", "intermediate_dim", "num_heads",
             "head_dim", "norm_eps"},
            {"hidden_dim", "intermediate_dim", "num_layers", "num_heads", "image_size",
             "patch_size", "in_channels", "num_classes"}};
  }
  static std::unique_ptr<Family> make();

  template <class T>
  static void add_options(OptionSchema& schema) {
    schema.integer<T>("image_size", &T::image_size, 0, 1e5,
                      "pixels, or latent cells, along an image's side; 0 takes the preset's");
    schema.integer<T>("patch_size", &T::patch_size, 0, 1e4,
                      "side of a patch; tokens = (image_size / patch_size)^2");
    schema.integer<T>("in_channels", &T::in_channels, 0, 1e4, "3 for pixels, 4 for latents");
    schema.integer<T>("num_classes", &T::num_classes, 0, 1e7,
                      "image classes; 0 takes the preset's");
    schema.choice<T>("positions", &T::positions, {"auto", "learned", "sincos"},
                     "positions of patches: a trained table, or fixed sines and cosines");
    schema.yes_or_no<T>("norm_affine", &T::norm_affine,
                        "layer norms of a DiT have weight and bias");
    schema.real<T>("label_dropout", &T::label_dropout, -1, 1,
                   "share of labels replaced by the null class; -1 takes the preset's");
  }
};

}  // namespace moonshard::models
