// Ghost norms: the squared norm of each sample's weight gradient of linear layers, from Gram
// matrices and without the gradient. For a layer with input a and output gradient g
//   ||g_b^T a_b||^2 = <a_b a_b^T, g_b g_b^T> = sum over positions (s, t) of (a_s . a_t)(g_s . g_t),
// which is cheaper while the sequence is short relative to the widths. Layers that read the same
// input share a_b a_b^T: they form a group.
//
// Dtypes and layout: a [B, T, i], g [B, T, o_k], of one dtype and device; B is one for all groups
// of a call, T one per group. The kernels take bfloat16, widths and strides that are multiples of 8
// elements, a stride of 1 in the last dimension and 16-byte aligned starts, at most
// kMostGhostLayers layers per group: one kernel is for Hopper, another for any GPU since Ampere.
// Every other group is done by the reference; on a GPU with one logged line.
//
// Tolerance: products are exact, their sums are float32, sums of those double. Rounding stays below
// 5e-7 of the magnitude; that is all of the portable kernel's error. In addition Hopper's tensor
// cores truncate their float32 sums, 16 columns at a time, so that these are too small by up to (i
// + o) / 16 * 2^-24 of themselves (measured on an H200: 6.7e-5 for i + o = 18,432, the whole of
// that). The kernel multiplies by 1 + that bound: truncation never makes a norm too small, and may
// leave it too large by half the bound. The reference's products on a GPU are truncated without
// correction. The order of all sums is fixed: equal inputs give equal bits.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

struct GhostGroup {
  at::Tensor a;               ///< [B, T, i]
  std::vector<at::Tensor> g;  ///< each [B, T, o_k]
};

/// True when a kernel can take the group's layout and dtype (on any device).
bool ghost_norm_supports(const GhostGroup& group);

/// [layers, B] each, double; layers in order through all groups.
struct GhostSums {
  at::Tensor value;      ///< sum of (a_s . a_t)(g_s . g_t): the squared norm
  at::Tensor magnitude;  ///< the same of absolute values: what value's rounding error scales with;
                         ///< at least, where a layer is computed in slices of g's columns
  /// Where the kernel has found them with the rest (Hopper, all groups), else undefined: bounds on
  /// position_lengths' lengths and spreads, by Cauchy and Schwarz over T positions.
  at::Tensor length{}, spread{};
};

/// On the current stream of the tensors' device; does not wait for it, and can be captured.
GhostSums ghost_norm(const std::vector<GhostGroup>& groups);

/// The definition of correct: any device, any float type. 16-bit inputs are multiplied into
/// float32, double stays double.
GhostSums ghost_norm_ref(const std::vector<GhostGroup>& groups);

}  // namespace moonshard::kernels
