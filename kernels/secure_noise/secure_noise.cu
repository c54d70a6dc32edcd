// One thread per ChaCha block of two elements. Bound by arithmetic: some thousand integer
// operations and four double logarithms and rotations per block.
#include <cuda_runtime.h>

#include "kernels/common/architecture.h"
#include "kernels/secure_noise/secure_noise_launch.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {
namespace {

template <class T>
__global__ void secure_noise_add_kernel(T* data, int64_t count, double std, double grid,
                                        SecureStream stream, int64_t first_element) {
  const int64_t first_block = first_element / 2;
  const int64_t last_block = (first_element + count - 1) / 2;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t block = first_block + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       block <= last_block; block += stride) {
    const TwoNormals normals = two_secure_normals(stream, static_cast<uint64_t>(block));
    for (int lane = 0; lane < 2; ++lane) {
      const int64_t i = block * 2 + lane - first_element;
      if (i < 0 || i >= count) continue;
      const double sum = static_cast<double>(data[i]) + std * normals.value[lane];
      data[i] = static_cast<T>(on_grid(sum, grid, 1 / grid));
    }
  }
}

template <class T>
void launch(void* data, int64_t count, double std, const SecureStream& stream,
            int64_t first_element, cudaStream_t cuda_stream) {
  constexpr int kThreads = 128;
  const int64_t blocks = (count / 2 + 2 + kThreads - 1) / kThreads;
  const int launched = static_cast<int>(blocks < 65535 ? blocks : 65535);
  secure_noise_add_kernel<T><<<launched, kThreads, 0, cuda_stream>>>(
      static_cast<T*>(data), count, std, secure_grid(std), stream, first_element);
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
