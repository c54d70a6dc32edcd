// Normalisation layers, with the residual operations around them. Each hands (layer, a,
// g) to the seam's consumer as param_ops.h says, or each sample's gradient where that is taken.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::models {

/// What a root-mean-square norm multiplies by: the weight, or 1 + weight (Gemma), whose gradient is
/// the same. The sum is formed in float32 or wider, then rounded as a weight is.
enum class NormScale { Weight, OnePlusWeight };

/// x [B, …, d] -> x / sqrt(mean(x^2) + eps) * scale; statistics in float32 or wider.
at::Tensor rms_norm(const at::Tensor& x, ParamLayer& layer, double eps,
                    NormScale scale = NormScale::Weight);

/// x [B, …, d] -> (x - mean) / sqrt(var + eps) * weight + bias; statistics in float32 or wider.
at::Tensor layer_norm(const at::Tensor& x, ParamLayer& layer, double eps);

struct AddedStream {
  at::Tensor stream;  ///< x + delta
  at::Tensor normed;  ///< rms_norm of it
};

/// The residual addition and the norm behind it, in one pass where the kernel runs. delta may be
/// undefined: the stream is then x.
AddedStream rms_norm_of_sum(const at::Tensor& x, const at::Tensor& delta, ParamLayer& layer,
                            double eps, NormScale scale = NormScale::Weight);

/// A residual stream of a diffusion transformer: x + gate * branch, the gate one row per sample [B,
/// D]. Branch and gate may be undefined.
struct GatedStream {
  at::Tensor x, branch, gate;
  at::Tensor sum() const;
};
/// The stream where a block of another dtype begins: its sum, cast; else as it is.
GatedStream in_type(const GatedStream& stream, at::ScalarType type);

/// modulated = layer_norm(stream) (1 + scale) + shift, scale and shift [B, D]; stream is the sum of
/// the gated stream. In one pass where the kernel runs, and then the branch's gradient is written
/// into the memory of the modulated one's: that must go into one linear layer and nowhere else.
struct ModulatedStream {
  at::Tensor stream, modulated;
};

/// `layer` may be null: a norm without parameters.
ModulatedStream modulated_layer_norm(const Seam& seam, const GatedStream& stream, ParamLayer* layer,
                                     const at::Tensor& shift, const at::Tensor& scale, double eps);

/// Whether modulated_layer_norm takes one pass: the caller then leaves the sum to it.
bool layer_norm_is_fused(const Seam& seam, const at::Tensor& x);

}  // namespace moonshard::models
