// Diffusion transformer (Peebles and Xie, "Scalable Diffusion Models with Transformers", 2023):
// patches of a noisy image, conditioned on the timestep and the class through adaptive layer norms
// (adaLN-Zero), predict the noise. Pixels (3 channels) or latents (4 channels; 32 x 32 for an image
// of 256 pixels). Task: denoise, mean squared error per sample.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/blocks/attention.h"
#include "runtime/models/blocks/norms.h"
#include "runtime/models/model.h"

namespace moonshard::models {

class Dit : public Model {
 public:
  explicit Dit(const ModelOptions& options);
  /// The predicted noise, of the inputs' shape [B, C, H, W].
  at::Tensor forward(const Batch& batch) override;
  at::Tensor losses(const Batch& batch) override;
  /// Replaces each label by the null class (row num_classes of the table) with probability
  /// label_dropout: what classifier-free guidance needs.
  Batch prepare(const Batch& batch, const RandomWords& words, int64_t step,
                int64_t first = 0) const override;
  void check(const Batch& batch) const override;
  int64_t count_tokens(const Batch& batch) const override;
  bool draws_by_position() const override {
    return options_.label_dropout > 0 || Model::draws_by_position();
  }

 private:
  struct Block {
    ParamLayer *norm1, *qkv, *proj, *norm2, *fc1, *fc2, *modulation;  ///< norms: null if not affine
  };
  Block add_block(const std::string& prefix);
  ParamLayer* add_norm(const std::string& name);
  at::Tensor embed(const at::Tensor& images);
  at::Tensor condition(const Batch& batch);
  GatedStream run_block(const Block& block, const GatedStream& before,
                        const at::Tensor& c_BD) const;
  at::Tensor attend(const Block& block, const at::Tensor& x_BTD) const;
  at::Tensor unpatchify(const at::Tensor& x_BTP) const;

  AttentionKind attention_;
  int64_t side_ = 0;  ///< patches along an image's side; T = side^2
  ParamLayer* patches_ = nullptr;
  ParamLayer* positions_ = nullptr;  ///< learned, or
  at::Tensor fixed_positions_1TD_;   ///< made once
  ParamLayer *timestep_in_ = nullptr, *timestep_out_ = nullptr, *labels_ = nullptr;
  std::vector<Block> blocks_;
  ParamLayer *final_norm_ = nullptr, *final_linear_ = nullptr, *final_modulation_ = nullptr;
};

// The forward process of denoising diffusion (Ho et al., "Denoising Diffusion Probabilistic
// Models", 2020): 1000 steps whose variance grows linearly from 1e-4 to 0.02.

inline constexpr int64_t kDiffusionSteps = 1000;

/// Share of the image's variance that is left after step t, for every t: [1000] float64 on the CPU,
/// the running product of 1 - variance.
const at::Tensor& remaining_signal();

/// sqrt(s_t) image + sqrt(1 - s_t) noise, s_t the remaining signal at each sample's own timestep.
/// images and noise [B, C, H, W] of one dtype, timesteps [B] int64 from 0 to 999.
at::Tensor add_diffusion_noise(const at::Tensor& images, const at::Tensor& noise,
                               const at::Tensor& timesteps);

}  // namespace moonshard::models
