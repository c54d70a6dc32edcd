// Where a token stands: rotary positions of decoders, sine and cosine positions of image patches.
// Neither has parameters. Tables are made in float64: position times frequency loses digits in
// float32 at long T, and it costs nothing.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace moonshard::models {

/// How rotary frequencies are made (Su et al., "RoFormer", 2021), and stretched for contexts longer
/// than those of the pre-training, as Llama 3.1 does it.
struct RotaryOptions {
  double base = 10000;
  bool llama3_scaling = false;
  bool linear_scaling = false;  ///< all wavelengths are stretched by the factor
  double factor = 1;            ///< of llama3: long wavelengths are stretched by this
  double low_freq_factor = 1;   ///< wavelengths above original_length / this are long
  double high_freq_factor = 4;  ///< wavelengths below original_length / this stay
  int64_t original_length = 0;  ///< context of the pre-training
};

/// base^(-2i / head_dim) for i = 0 … head_dim / 2 - 1, float64 on `device`. Linear scaling divides
/// all by the factor. With llama3 scaling a frequency whose wavelength is long is divided by the
/// factor, a short one stays, and those in between are blended linearly in original_length /
/// wavelength.
at::Tensor rotary_frequencies(int64_t head_dim, const RotaryOptions& options, c10::Device device);

/// Cosines and sines of T positions, in Hugging Face's half-split layout: dimension i of a head
/// pairs with i + head_dim / 2. Values are rounded to the compute dtype.
struct RotaryTable {
  at::Tensor cosines,
      sines;  ///< [T, head_dim] in that format; fused: [T, head_dim / 2], float32 or wider
  bool fused = false;
};

/// For activations of `like`'s format and device. Fused where `fused_allowed` and the kernel runs.
RotaryTable rotary_table(int64_t tokens, int64_t head_dim, const RotaryOptions& options,
                         const at::Tensor& like, bool fused_allowed);

/// The same for tokens at these positions [n], int64 on the device of `like`: [n, …] for each of
/// them.
RotaryTable rotary_table_at(const at::Tensor& positions, int64_t head_dim,
                            const RotaryOptions& options, const at::Tensor& like,
                            bool fused_allowed);

/// Rotates x [B, H, T, head_dim] by the positions of the table, by plain operations.
at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table);

struct RotatedHeads {
  at::Tensor q, k;
};

/// q [B, T, Hq head_dim], k [B, T, Hkv head_dim] -> the same turned, by a fused table. They are
/// turned where they lie, and so are their gradients: q and k must be results that nothing else
/// reads or keeps (those of linear layers are), and go into the attention alone.
RotatedHeads rotate_in_place(const at::Tensor& q, const at::Tensor& k, const RotaryTable& table);
/// One of them alone.
at::Tensor rotate_in_place(const at::Tensor& x, const RotaryTable& table);

/// [1, side * side, width] for patches in row order: the first half of the width tells the column,
/// the second the row; each half is sines, then cosines, of position / 10000^(4i / width), as DiT
/// has it. width must be a multiple of 4.
at::Tensor sincos_positions(int64_t side, int64_t width, const at::TensorOptions& options);

// The time of a diffusion step as a vector: cosines and sines of geometrically falling frequencies,
// the input of a small MLP.

inline constexpr int64_t kTimestepFrequencies = 256;

/// timesteps [B] -> [B, 256]: cosines, then sines, of t * 10000^(-i / 128), in `type`.
at::Tensor timestep_features(const at::Tensor& timesteps, at::ScalarType type);

}  // namespace moonshard::models
