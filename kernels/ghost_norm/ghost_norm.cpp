#include "kernels/ghost_norm/ghost_norm.h"

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "kernels/ghost_norm/ghost_norm_check.h"
#include "kernels/ghost_norm/ghost_norm_launch.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

// Strides of dimensions of size 1 are never used.
bool strides_fit(const at::Tensor& x) {
  const auto fits = [&](int64_t dim) {
    return x.size(dim) == 1 || (x.stride(dim) >= x.size(2) && x.stride(dim) % 8 == 0);
  };
  return (x.size(2) == 1 || x.stride(2) == 1) && fits(1) && fits(0);
}

bool operand_fits(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && x.size(2) % 8 == 0 && strides_fit(x) &&
         reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
}

GhostOperand operand(const at::Tensor& x) {
  return {x.data_ptr(), x.size(2), x.stride(1), x.stride(0)};
}

int64_t layers_of(const std::vector<GhostGroup>& groups) {
  int64_t layers = 0;
  for (const GhostGroup& group : groups) layers += static_cast<int64_t>(group.g.size());
  return layers;
}

}  // namespace

void check_ghost_groups(const std::vector<GhostGroup>& groups) {
  MS_CHECK(layers_of(groups) > 0, "ghost_norm: expected at least one layer, got none");
  const at::Tensor& first = groups.front().a;
  for (const GhostGroup& group : groups) {
    MS_CHECK(group.a.dim() == 3 && group.a.size(0) == first.size(0) &&
                 group.a.device() == first.device(),
             "ghost_norm: expected inputs [B, T, i] with B = {} on {}, got {} on {}; flatten "
             "positions into T and call once per device",
             first.size(0), first.device().str(), c10::str(group.a.sizes()),
             group.a.device().str());
    for (const at::Tensor& g : group.g) {
      MS_CHECK(g.dim() == 3 && g.size(0) == group.a.size(0) && g.size(1) == group.a.size(1) &&
                   g.scalar_type() == group.a.scalar_type() && g.device() == group.a.device(),
               "ghost_norm: expected an output gradient [{}, {}, o] of type {}, got {} of type {}; "
               "a layer's input and output gradient have the same positions",
               group.a.size(0), group.a.size(1), c10::toString(group.a.scalar_type()),
               c10::str(g.sizes()), c10::toString(g.scalar_type()));
    }
  }
}

bool ghost_norm_supports(const GhostGroup& group) {
  if (group.a.dim() != 3 || group.a.numel() == 0 ||
      static_cast<int64_t>(group.g.size()) > kMostGhostLayers)
    return false;
  // Tiles are counted in 32 bits: half a million positions of one sample, or fewer of many.
  constexpr int64_t kMostTilePairs = int64_t{1} << 29;
  const int64_t n = (group.a.size(1) + 63) / 64;
  if (n * n > kMostTilePairs / group.a.size(0)) return false;
  if (!operand_fits(group.a)) return false;
  for (const at::Tensor& g : group.g) {
    if (g.dim() != 3 || g.numel() == 0 || !operand_fits(g)) return false;
  }
  return true;
}

GhostSums ghost_norm(const std::vector<GhostGroup>& groups) {
  check_ghost_groups(groups);
  const at::Tensor& first = groups.front().a;
  const Variant variant = variant_of("ghost_norm", first);
  if (variant == Variant::None) return ghost_norm_ref(groups);
  const int64_t B = first.size(0), layers = layers_of(groups);
  GhostSums sums{at::empty({layers, B}, first.options().dtype(at::kDouble)),
                 at::empty({layers, B}, first.options().dtype(at::kDouble))};
  std::vector<GhostGroupView> views;
  int64_t row = 0, by_kernel = 0;
  for (const GhostGroup& group : groups) {
    const auto count = static_cast<int64_t>(group.g.size());
    if (count == 0) continue;
    if (ghost_norm_supports(group)) {
      GhostGroupView& view = views.emplace_back();
      view.tokens = group.a.size(1);
      view.a = operand(group.a);
      for (int64_t k = 0; k < count; ++k) {
        view.g.push_back(operand(group.g[static_cast<size_t>(k)]));
        view.rows.push_back(row + k);
      }
      by_kernel += count;
    } else {
      if (group.a.numel() > 0) {
        note_fallback("ghost_norm",
                      std::string("a group of ") + c10::toString(group.a.scalar_type()) +
                          " and input width " + std::to_string(group.a.size(2)) +
                          "; expected BFloat16, and widths and strides in multiples of 8");
      }
      const GhostSums plain = ghost_norm_ref({group});
      sums.value.narrow(0, row, count).copy_(plain.value);
      sums.magnitude.narrow(0, row, count).copy_(plain.magnitude);
    }
    row += count;
  }
  if (views.empty()) return sums;
  const LaunchStream stream(first);
  const bool hopper = variant == Variant::Hopper;
  const at::Tensor workspace = at::empty({hopper ? cuda().ghost_norm_sm90_workspace_bytes(views, B)
                                                 : cuda().ghost_norm_mma_workspace_bytes(views, B)},
                                         first.options().dtype(at::kByte));
  const auto launch = hopper ? cuda().launch_ghost_norm_sm90 : cuda().launch_ghost_norm_mma;
  GhostResults results{sums.value.data_ptr<double>(), sums.magnitude.data_ptr<double>()};
  if (hopper) {
    sums.length = at::empty_like(sums.value);
    sums.spread = at::empty_like(sums.value);
    results.length = sums.length.data_ptr<double>();
    results.spread = sums.spread.data_ptr<double>();
  }
  launch(views, B, results, workspace.data_ptr(), stream);
  if (by_kernel < layers) sums.length = sums.spread = at::Tensor();
  return sums;
}

}  // namespace moonshard::kernels
