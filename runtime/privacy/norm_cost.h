// Cost of a layer's norms and sums, by formula, for choosing between them.
// One unit is one floating-point operation; a byte moved counts as many as the device can do
// in that time.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "kernels/flash_norm/flash_norm.h"
#include "runtime/privacy/layer_rules.h"

namespace moonshard::privacy {

struct LayerShape {
  double samples, positions, in, out;
  double element_bytes;
  bool on_gpu;
  bool by_kernel = false;  ///< fused kernels take the layer (block_norms.h)
  double readers = 1;      ///< layers that read the same input: each has its share of it
};

LayerShape shape_of(const at::Tensor& a, const at::Tensor& g);

/// 2 T^2 (in + out) per sample; half of it where the symmetry is used. Kernels compute both in the
/// same way, by tiles of positions.
double ghost_cost(const LayerShape& shape);
double input_length_cost(const LayerShape& shape);
/// 2 T in out per sample: as much as the weight gradient itself.
double width_cost(const LayerShape& shape);
/// The weighted sum from (a, g), and from kept gradients.
double sum_inputs_cost(const LayerShape& shape);
double keep_gradients_cost(const LayerShape& shape);

/// Of an element that a kernel keeps in 16 bits, with its share of a unit (flash_norm.h).
inline constexpr double kCompactBytes = 2 + 4 / static_cast<double>(kernels::kUnitElements);
/// Rows can be kept in 16 bits: whole units, by kernels.
bool has_compact_rows(const LayerShape& shape);
/// What they cost, and what the update's reading of them does; only where there are any.
double keep_compact_cost(const LayerShape& shape);
double read_compact_cost(const LayerShape& shape);
double kept_compact_bytes(const LayerShape& shape);

/// With the layer's share of its input.
double kept_inputs_bytes(const LayerShape& shape);
double kept_gradients_bytes(const LayerShape& shape);

/// The cheaper flash algorithm, or the one that was asked for by name ("auto", "input_length",
/// "width").
NormMethod choose_flash(const LayerShape& shape, const std::string& algorithm);

}  // namespace moonshard::privacy
