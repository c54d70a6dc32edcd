// Memory of LibTorch's sum over positions on a GPU, which bias gradients are. Torch-free.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace moonshard::plan {

/// Bytes that are there while `outputs` numbers that lie side by side are each the sum of `summed`
/// others, in float32. So few outputs leave most of a GPU idle: LibTorch divides each sum among
/// blocks, and takes for each of these as many numbers as its threads have, for every output (a
/// hundred and more megabytes where the result has kilobytes). By ATen/native/cuda/Reduce.cuh,
/// setReduceConfig and global_memory_size, of an H100 or H200.
inline double partial_sums_bytes(double outputs, double summed) {
  constexpr int64_t kProcessors = 132, kThreadsOfOne = 2048, kThreads = 512, kWarp = 32;
  constexpr int64_t kLeastValues = 16, kMostValues = 256, kNumber = 4;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto below = [](int64_t n) {
    return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
  };
  const auto out = static_cast<int64_t>(outputs), in = static_cast<int64_t>(summed);
  if (out <= 0 || in <= 0) return 0;
  const int64_t at_once = out % 4 == 0 ? 4 : out % 2 == 0 ? 2 : 1;  // outputs of a thread
  const int64_t most = kThreads / at_once;
  const int64_t wide = std::min(below(out / at_once), most), high = std::min(below(in), most);
  const int64_t height = std::min(high, most / std::min(wide, kWarp));
  const int64_t width = std::min(wide, most / height);
  if (in < std::min(height * kLeastValues, kMostValues)) return 0;
  const int64_t values = up(in, height), blocks = up(out / at_once, width);
  const int64_t wanted = kProcessors * (kThreadsOfOne / (width * height));
  if (values < kMostValues || blocks > wanted) return 0;
  const int64_t parts =
      std::max(std::min(up(wanted, blocks), up(values, kLeastValues)), up(values, kMostValues));
  return parts > 1 ? static_cast<double>(kNumber * out * parts * width * at_once) : 0;
}

}  // namespace moonshard::plan
