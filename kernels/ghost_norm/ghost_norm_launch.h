// Launchers of ghost_norm, without ATen. Layouts are checked by the caller (ghost_norm.cpp).
#pragma once

#include <cstdint>
#include <vector>

namespace moonshard::kernels {

/// A bfloat16 tensor [samples, tokens, width] on the device; strides in elements, the last is 1.
struct GhostOperand {
  const void* data = nullptr;
  int64_t width = 0, token_stride = 0, sample_stride = 0;
};

/// One input and the output gradients of the layers that read it.
struct GhostGroupView {
  int64_t tokens = 0;
  GhostOperand a;
  std::vector<GhostOperand> g;
  std::vector<int64_t> rows;  ///< of each layer in the results [rows, samples]
};

/// A launch takes this many layers of one group at most (their tensors are kernel
/// parameters); more groups become more launches.
constexpr int64_t kMostGhostLayers = 16;

/// Bytes of scratch on the device for one call. Nothing in it needs to be set before.
int64_t ghost_norm_sm90_workspace_bytes(const std::vector<GhostGroupView>& groups, int64_t samples);

/// Slices of g's columns, [blocks k / slices, blocks (k + 1) / slices) of 64, that a group by
/// itself is cut into on the current device.
int ghost_norm_sm90_slices(const GhostGroupView& group, int64_t samples);

/// Each [rows, samples]: the rows named by the groups are written.
struct GhostResults {
  double* value = nullptr;
  double* magnitude = nullptr;  ///< of a layer in slices: the sum of theirs
  /// Of the diagonals, which have the lengths of rows, times 1.00001 and never too small: the root
  /// of T sum |a_t|^2 |g_t|^2, and T (sum |a_t|^2 + sum |g_t|^2). By Hopper's kernel.
  double* length = nullptr;
  double* spread = nullptr;
};

/// On the current device and the given stream; allocates nothing and waits for nothing, so it can
/// be captured.
void launch_ghost_norm_sm90(const std::vector<GhostGroupView>& groups, int64_t samples,
                            const GhostResults& results, void* workspace, void* stream);

/// The same for any GPU since Ampere, without lengths and spreads.
int64_t ghost_norm_mma_workspace_bytes(const std::vector<GhostGroupView>& groups, int64_t samples);
void launch_ghost_norm_mma(const std::vector<GhostGroupView>& groups, int64_t samples,
                           const GhostResults& results, void* workspace, void* stream);

/// Sums over a part of a diagonal: of |a_t|^2 |g_t|^2, |a_t|^2 and |g_t|^2.
struct GhostDiagonal {
  double products = 0, a = 0, g = 0;
};

/// A kernel's output for one layer: partial sums (value, magnitude), `per_sample` float pairs for
/// each sample, one sample after the other.
struct GhostPartials {
  const float* pairs = nullptr;
  int64_t per_sample = 0, row = 0;
  double gain = 1;  ///< both sums are multiplied by it
  /// Likewise; null: length and spread are not written.
  const GhostDiagonal* diagonals = nullptr;
  int64_t diagonals_per_sample = 0, positions = 0;
};

/// Compensates for the tensor cores' truncated float32 sums: at most 2^-24 of the sum for every 16
/// columns.
inline double cut_off_gain(int64_t columns) {
  return 1 + static_cast<double>((columns + 15) / 16) * 5.960464477539063e-8;
}

/// Adds the partial sums of each layer and sample in double, in a fixed order.
void launch_ghost_norm_reduce(const std::vector<GhostPartials>& layers, int64_t samples,
                              const GhostResults& results, void* stream);

}  // namespace moonshard::kernels
