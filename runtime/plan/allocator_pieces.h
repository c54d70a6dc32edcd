// What LibTorch's allocator gives for a tensor on a GPU, which can be up to a MiB more than it asks
// for. Torch-free.
#pragma once

#include <cmath>

namespace moonshard::plan {

/// By c10/cuda/CUDACachingAllocator: from 1 MiB on, tensors are cut from segments of 20 MiB; from
/// 10 MiB on each has a segment of its own, in steps of 2 MiB. What is left over is cut off only
/// if it is more than 1 MiB. Of tensors that share a segment, the last one has all that is left:
/// here each has its share.
inline double as_allocated(double bytes) {
  constexpr double kMiB = 1 << 20, kLeft = kMiB, kShared = 20 * kMiB, kStep = 2 * kMiB;
  if (bytes <= kMiB) return bytes;
  if (bytes < kShared / 2) {
    const double count = std::floor(kShared / bytes), left = kShared - count * bytes;
    return left <= kLeft ? kShared / count : bytes;
  }
  const double segment = std::ceil(bytes / kStep) * kStep;
  return segment - bytes <= kLeft ? segment : bytes;
}

}  // namespace moonshard::plan
