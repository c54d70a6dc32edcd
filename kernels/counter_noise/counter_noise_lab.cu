// Lab of counter_noise: compares the kernel with the reference arithmetic on the host, then times
// it. Run on a GPU: build/bin/counter_noise_lab [elements]
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/counter_noise/counter_noise_launch.h"
#include "kernels/counter_noise/counter_noise_math.h"

namespace {

using namespace moonshard::kernels;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "counter_noise_lab: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Largest difference over a window that starts inside a Philox block, as a shard's does.
double largest_difference(int64_t count, int64_t first_element, const NoiseStream& stream) {
  float* device = nullptr;
  check(cudaMalloc(&device, count * sizeof(float)), "cudaMalloc");
  check(cudaMemset(device, 0, count * sizeof(float)), "cudaMemset");
  launch_counter_noise(device, 0, count, 1.0, stream, first_element, nullptr);
  std::vector<float> got(count);
  check(cudaMemcpy(got.data(), device, count * sizeof(float), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  check(cudaFree(device), "cudaFree");
  double worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t element = static_cast<uint64_t>(first_element + i);
    const float want =
        four_normals(element / 4, stream.step, stream.parameter, stream.key).value[element % 4];
    worst = std::fmax(worst, std::fabs(static_cast<double>(want) - got[i]));
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t count = argc > 1 ? std::atoll(argv[1]) : int64_t{1} << 28;
  const NoiseStream stream{42, 7, 3};
  const double worst = largest_difference(1'000'003, 5, stream);
  std::printf("largest difference to the reference over 1,000,003 normals: %.3g\n", worst);
  if (worst > 1e-5) return 1;

  float* device = nullptr;
  check(cudaMalloc(&device, count * sizeof(float)), "cudaMalloc");
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  for (int repeat = 0; repeat < 5; ++repeat) {
    check(cudaEventRecord(start), "record");
    launch_counter_noise(device, 0, count, 1.0, stream, 0, nullptr);
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    std::printf("%lld floats: %.3f ms, %.2f TB/s read and written\n", static_cast<long long>(count),
                ms, 8e-9 * static_cast<double>(count) / ms);
  }
  return 0;
}
