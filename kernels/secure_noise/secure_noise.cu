// One thread per ChaCha block of sixteen elements, a warp per tile: groups of four elements of
// neighbouring threads lie side by side.
#include <cuda_runtime.h>

#include "kernels/common/architecture.h"
#include "kernels/secure_noise/secure_noise_launch.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {
namespace {

template <class T>
__global__ void secure_noise_add_kernel(T* data, int64_t count, float std, T grid, T inverse_grid,
                                        const __grid_constant__ SecureStream stream,
                                        int64_t first_element) {
  const int64_t first_tile = first_element / kTileElements;
  const int64_t num_tiles = (first_element + count - 1) / kTileElements - first_tile + 1;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int64_t tile = first_tile + warp; tile < first_tile + num_tiles; tile += warps) {
    const auto block = static_cast<uint64_t>(tile * kTileBlocks + lane);
    const ChaChaWords words = noise_words(stream.key, block, stream.step, stream.parameter);
#pragma unroll
    for (int even = 0; even < 16; even += 2) {
      const NormalPair pair = noise_pair(words.word[even], words.word[even + 1], stream.key, block,
                                         stream.step, stream.parameter, even);
      const T radius = static_cast<T>(std * pair.radius);
      const int64_t at =
          tile * kTileElements + even / 4 * kTileRow + lane * 4 + even % 4 - first_element;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int64_t i = at + k;
        if (i < 0 || i >= count) continue;
        const T sum = fma(radius, static_cast<T>(k == 0 ? pair.cosine : pair.sine), data[i]);
        data[i] = on_grid(sum, grid, inverse_grid);
      }
    }
  }
}

template <class T>
void launch(void* data, int64_t count, double std, const SecureStream& stream,
            int64_t first_element, cudaStream_t cuda_stream) {
  const double grid = secure_grid(std);
  constexpr int kThreads = 256;
  const int64_t blocks = count / (kThreads * 16) + 1;
  secure_noise_add_kernel<T>
      <<<static_cast<int>(blocks < 65535 ? blocks : 65535), kThreads, 0, cuda_stream>>>(
          static_cast<T*>(data), count, float_at_least(std), static_cast<T>(grid),
          static_cast<T>(1 / grid), stream, first_element);
}

}  // namespace

void launch_secure_noise(void* data, bool is_double, int64_t count, double std,
                         const SecureStream& stream, int64_t first_element, void* cuda_stream) {
  const auto on = static_cast<cudaStream_t>(cuda_stream);
  if (is_double) {
    launch<double>(data, count, std, stream, first_element, on);
  } else {
    launch<float>(data, count, std, stream, first_element, on);
  }
  check_launch("secure_noise");
}

}  // namespace moonshard::kernels
