#include "kernels/clipped_update/clipped_update.h"

#include <ATen/ATen.h>

namespace moonshard::kernels {

bool clipped_update_supports(const SampleProblem& problem) {
  return problem.a.size(2) % kClippedUpdateColumns == 0 &&
         problem.g.size(0) <= kClippedSumSamples && sample_gemm_takes("clipped_update", problem);
}

bool clipped_update_pays(const std::vector<SampleProblem>& problems) {
  constexpr int64_t kTile = 64 * 256, kTilesForAll = 2 * 132;
  int64_t elements = 0;
  for (const SampleProblem& problem : problems) {
    const int64_t tiles = problem.g.size(0) * ((problem.g.size(1) + 63) / 64);
    if (tiles < kClippedUpdateLeastTiles) return false;
    elements += problem.g.size(2) * problem.a.size(2);
  }
  return elements >= kTile * kTilesForAll;
}

bool clipped_update_takes(const RawUpdateRule& rule) {
  return rule.is_secret && rule.noise_std > 0 &&
         (rule.kind == UpdateKind::Sgd || rule.kind == UpdateKind::Adam ||
          rule.kind == UpdateKind::AdamW) &&
         (rule.value_format == UpdateFormat::Split || rule.value_format == UpdateFormat::Bfloat16);
}

}  // namespace moonshard::kernels
