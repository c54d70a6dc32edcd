#include "runtime/privacy/norm_cost.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace moonshard::privacy {
namespace {

// Operations per byte of memory traffic: a few cores do some 10; an H200 some 160 in bfloat16, 12
// in float32.
double operations_per_byte(const LayerShape& shape) {
  return !shape.on_gpu ? 10 : shape.element_bytes < 4 ? 160 : 12;
}

// The fused kernels, beside cuBLAS's weight gradient = 1 per operation (kernels/*/*_lab.cu): the
// Gram products of a block in one launch, lower triangles only; gradients that are kept or not,
// which read the operands once more for their lengths (position_lengths).
constexpr double kGhostKernel = 1.08, kFlashKernel = 1.0, kSumKernel = 1.02, kKeepKernel = 1.03;

// Positions of a Gram kernel's tile; those on the diagonal are computed whole.
constexpr double kGhostTile = 128;

// Tiles are small products with a sum behind each: measured at half the speed of one large product,
// on a GPU at a quarter.
double tile_overhead(const LayerShape& shape) {
  return shape.on_gpu ? 4 : 2;
}

}  // namespace

LayerShape shape_of(const at::Tensor& a, const at::Tensor& g) {
  const double samples = static_cast<double>(g.size(0));
  const double out = static_cast<double>(g.size(-1));
  const double positions = static_cast<double>(g.numel()) / std::max(1.0, samples * out);
  const double in =
      a.defined() && at::isFloatingType(a.scalar_type()) ? static_cast<double>(a.size(-1)) : out;
  return {samples, positions, in, out, static_cast<double>(g.element_size()), g.is_cuda()};
}

double ghost_cost(const LayerShape& s) {
  if (s.by_kernel) {
    return kGhostKernel * s.samples * s.positions * (s.positions + kGhostTile) *
           (s.in / s.readers + s.out);
  }
  return s.samples * s.positions * s.positions * (2 * (s.in + s.out) + 16 * operations_per_byte(s));
}

double input_length_cost(const LayerShape& s) {
  if (s.by_kernel) return ghost_cost(s);  // one kernel: tiles of positions, nothing stored
  return s.samples * s.positions * s.positions *
         (tile_overhead(s) * (s.in + s.out) + 8 * operations_per_byte(s));
}

double width_cost(const LayerShape& s) {
  if (s.by_kernel) return kFlashKernel * 2 * s.samples * s.positions * s.in * s.out;
  return s.samples * s.in * s.out * (2 * s.positions + 8 * operations_per_byte(s));
}

double sum_inputs_cost(const LayerShape& s) {
  if (s.by_kernel) {
    // The float32 sum is written here and read by the update.
    return s.in * s.out * (kSumKernel * 2 * s.samples * s.positions + 8 * operations_per_byte(s));
  }
  const double scaled_copy = 3 * s.element_bytes * std::min(s.in, s.out) * operations_per_byte(s);
  // A GPU applies factors to each sample's product of 16-bit operands: written, read, and added.
  const double products =
      s.on_gpu && s.element_bytes < 4 ? 16 * s.in * s.out * operations_per_byte(s) : 0;
  return s.samples * (s.positions * (2 * s.in * s.out + scaled_copy) + products);
}

double keep_gradients_cost(const LayerShape& s) {
  // Written once, read for the norm and read for the sum.
  return s.samples * s.in * s.out * (2 * s.positions + 12 * operations_per_byte(s));
}

double keep_compact_cost(const LayerShape& s) {
  // Two bytes, which are not written at the full speed of memory beside products.
  constexpr double kWritten = 2.8;
  return s.in * s.out * s.samples *
         (kKeepKernel * 2 * s.positions + kWritten * operations_per_byte(s));
}

double read_compact_cost(const LayerShape& s) {
  return s.in * s.out * s.samples * kCompactBytes * operations_per_byte(s);
}

double kept_compact_bytes(const LayerShape& s) {
  return s.samples * s.in * s.out * kCompactBytes;
}

bool has_compact_rows(const LayerShape& s) {
  return s.by_kernel &&
         kernels::has_whole_units(static_cast<int64_t>(s.in), static_cast<int64_t>(s.out));
}

double kept_inputs_bytes(const LayerShape& s) {
  return s.samples * s.positions * (s.in / s.readers + s.out) * s.element_bytes;
}

double kept_gradients_bytes(const LayerShape& s) {
  return s.samples * s.in * s.out * std::max(4.0, s.element_bytes);
}

NormMethod choose_flash(const LayerShape& shape, const std::string& algorithm) {
  if (algorithm == "input_length") return NormMethod::InputLength;
  if (algorithm == "width") return NormMethod::Width;
  return input_length_cost(shape) < width_cost(shape) ? NormMethod::InputLength : NormMethod::Width;
}

}  // namespace moonshard::privacy
