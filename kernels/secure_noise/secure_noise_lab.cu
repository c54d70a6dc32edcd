// Lab of secure_noise: compares the kernel with the reference arithmetic on the host, then times
// it. Run on a GPU: build/bin/secure_noise_lab [elements]
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/secure_noise/secure_noise_launch.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace {

using namespace moonshard::kernels;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "secure_noise_lab: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Numbers that are more than a cell of the grid away from the host's.
int64_t wrong_numbers(int64_t count, int64_t first_element, const SecureStream& stream) {
  const double std = 0.7, grid = secure_grid(std);
  double* device = nullptr;
  check(cudaMalloc(&device, count * sizeof(double)), "cudaMalloc");
  check(cudaMemset(device, 0, count * sizeof(double)), "cudaMemset");
  launch_secure_noise(device, true, count, std, stream, first_element, nullptr);
  std::vector<double> got(count);
  check(cudaMemcpy(got.data(), device, count * sizeof(double), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  check(cudaFree(device), "cudaFree");
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    const ElementNormal normal = element_normal(stream, first_element + i);
    const double want = on_grid(
        std * static_cast<double>(normal.pair.radius) * static_cast<double>(normal.factor()), grid,
        1 / grid);
    if (!(std::fabs(want - got[i]) <= grid)) ++wrong;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t count = argc > 1 ? std::atoll(argv[1]) : int64_t{1} << 26;
  SecureStream stream;
  for (uint32_t i = 0; i < 8; ++i) stream.key.word[i] = 0x9e3779b9u * (i + 1);
  const int64_t wrong = wrong_numbers(1'000'003, 5, stream);
  std::printf("%s: %lld of 1,000,003 numbers are not the reference's\n", wrong ? "FAIL" : "PASS",
              static_cast<long long>(wrong));
  if (wrong > 0) return 1;

  float* device = nullptr;
  check(cudaMalloc(&device, count * sizeof(float)), "cudaMalloc");
  check(cudaMemset(device, 0, count * sizeof(float)), "cudaMemset");
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  for (int repeat = 0; repeat < 5; ++repeat) {
    check(cudaEventRecord(start), "record");
    launch_secure_noise(device, false, count, 1.0, stream, 0, nullptr);
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    std::printf("%lld floats: %.3f ms, %.2f billion normals per second\n",
                static_cast<long long>(count), ms, 1e-6 * static_cast<double>(count) / ms);
  }
  return 0;
}
