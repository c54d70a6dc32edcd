// One thread per Philox block of four elements: no state is read, one read and one write per
// element, so the kernel runs at memory speed. Free of ATen headers, which cost nvcc a minute.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/common/architecture.h"
#include "kernels/counter_noise/counter_noise_launch.h"
#include "kernels/counter_noise/counter_noise_math.h"

namespace moonshard::kernels {
namespace {

template <class T>
__global__ void counter_noise_add_kernel(T* data, int64_t count, double std, NoiseStream stream,
                                         int64_t first_element) {
  const int64_t first_block = first_element / 4;
  const int64_t last_block = (first_element + count - 1) / 4;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t block = first_block + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       block <= last_block; block += stride) {
    const FourNormals normals =
        four_normals(static_cast<uint64_t>(block), stream.step, stream.parameter, stream.key);
    for (int lane = 0; lane < 4; ++lane) {
      const int64_t i = block * 4 + lane - first_element;
      if (i >= 0 && i < count) {
        // As in the reference: the sum in double, one rounding to the target's dtype.
        data[i] = static_cast<T>(static_cast<double>(data[i]) +
                                 std * static_cast<double>(normals.value[lane]));
      }
    }
  }
}

template <class T>
void launch(void* data, int64_t count, double std, const NoiseStream& stream, int64_t first_element,
            cudaStream_t cuda_stream) {
  constexpr int kThreads = 256;
  const int64_t blocks = (count / 4 + 2 + kThreads - 1) / kThreads;
  const int grid = static_cast<int>(blocks < 65535 ? blocks : 65535);
  counter_noise_add_kernel<T><<<grid, kThreads, 0, cuda_stream>>>(static_cast<T*>(data), count, std,
                                                                  stream, first_element);
}

}  // namespace

void launch_counter_noise(void* data, int format, int64_t count, double std,
                          const NoiseStream& stream, int64_t first_element, void* cuda_stream) {
  const auto on = static_cast<cudaStream_t>(cuda_stream);
  switch (format) {
    case 0:
      launch<float>(data, count, std, stream, first_element, on);
      break;
    case 1:
      launch<double>(data, count, std, stream, first_element, on);
      break;
    case 2:
      launch<__nv_bfloat16>(data, count, std, stream, first_element, on);
      break;
    default:
      launch<__half>(data, count, std, stream, first_element, on);
      break;
  }
  check_launch("counter_noise");
}

}  // namespace moonshard::kernels
