// How much of a GPU works while Gram products of positions run: the ghost kernel gives pairs of
// tiles of 128 x 128 positions to pairs of multiprocessors, those of the dearest layers first
// (kernels/ghost_norm), and all wait for the last one. A block's layers share one launch, which
// fills what each of them alone would leave idle. Torch-free.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace moonshard::plan {

/// Layers that read one input: their tiles have the products of the input and of each output.
struct GramGroup {
  double samples = 0, positions = 0;
  double width = 0;  ///< of the input and of all outputs

  double pairs_of_tiles() const {
    constexpr double kTile = 128;
    const double n = std::ceil(positions / kTile);
    return std::ceil(samples * n * (n + 1) / 4);
  }
};

/// Of the multiprocessors' time until the launch has ended: the part in which they multiply.
inline double gram_share(const std::vector<GramGroup>& groups) {
  constexpr double kClusters = 66;  // pairs of multiprocessors of an H100 or H200
  double work = 0, longest = 0, shortest = 1e300;
  for (const GramGroup& group : groups) {
    work += group.pairs_of_tiles() * group.width;
    longest = std::max(longest, group.width);
    shortest = std::min(shortest, group.width);
  }
  if (work == 0) return 1;
  const double rounds = std::ceil(work / (kClusters * shortest) - 1e-9);
  return work / (kClusters * std::max(longest, rounds * shortest));
}

}  // namespace moonshard::plan
