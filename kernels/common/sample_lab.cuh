// What the labs of the per-sample kernels share: fresh operands with poisoned padding, the exact
// per-sample gradient in double, poisoned outputs with guards, and timing.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/sample_operands.h"

namespace moonshard::kernels::lab {

inline void cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("FAIL %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Device memory, filled with 0xff (NaN in every float dtype).
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count = 0) : count_(count) {
    cuda(cudaMalloc(&data_, std::max<int64_t>(bytes(), 16)), "cudaMalloc");
    poison();
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }

  void poison() { cuda(cudaMemset(data_, 0xff, static_cast<size_t>(bytes())), "cudaMemset"); }
  T* get() const { return data_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  std::vector<T> read() const {
    std::vector<T> values(static_cast<size_t>(count_));
    cuda(cudaMemcpy(values.data(), data_, static_cast<size_t>(bytes()), cudaMemcpyDeviceToHost),
         "read");
    return values;
  }
  void write(const std::vector<T>& values) {
    cuda(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
         "write");
  }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

enum class Data {
  Normal,     ///< independent, mean 0
  Positive,   ///< all of one sign: rounding errors of one sign, too
  Cancelling  ///< the second half of the positions nearly undoes the first
};

__device__ inline float hashed_normal(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + index;
  float sum = 0;
  for (int n = 0; n < 4; ++n) {  // a sum of uniforms is normal enough
    x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull;
    x ^= x >> 33;
    sum += static_cast<float>(x >> 40) * (1.0f / 16777216.0f) - 0.5f;
  }
  return sum * 1.7320508f;
}

// `flip`: the operand whose second half changes its sign under Cancelling; the other is repeated
// with small changes.
template <class T>
__global__ void fill_kernel(T* data, int64_t samples, int64_t positions, int64_t width,
                            int64_t row_stride, int64_t sample_stride, uint64_t seed, float size,
                            Data kind, bool flip) {
  const int64_t count = samples * positions * width;
  for (int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; at < count;
       at += int64_t{gridDim.x} * blockDim.x) {
    const int64_t column = at % width, row = at / width;
    const int64_t position = row % positions, sample = row / positions;
    int64_t drawn = at;
    float sign = 1, change = 0;
    if (kind == Data::Cancelling && position >= (positions + 1) / 2) {
      drawn = at - (positions + 1) / 2 * width;
      sign = flip ? -1.0f : 1.0f;
      change = flip ? 0 : 0.02f * hashed_normal(seed + 77, static_cast<uint64_t>(at));
    }
    float value = hashed_normal(seed, static_cast<uint64_t>(drawn)) * (1.0f + change) * sign;
    if (kind == Data::Positive) value = fabsf(value) + 0.1f;
    data[sample * sample_stride + position * row_stride + column] = static_cast<T>(value * size);
  }
}

/// One layer's operands on the device; paddings between rows and samples are NaN.
struct Operands {
  Operands(int64_t samples, int64_t positions, int64_t i, int64_t o, uint64_t seed,
           Data kind = Data::Normal, int64_t padding = 0)
      : a(samples * (positions * (i + padding) + padding)),
        g(samples * (positions * (o + padding) + padding)) {
    in.samples = samples;
    in.positions = positions;
    in.i = i;
    in.o = o;
    in.a = a.get();
    in.g = g.get();
    in.a_row = i + padding;
    in.g_row = o + padding;
    in.a_sample = positions * in.a_row + padding;
    in.g_sample = positions * in.g_row + padding;
    fill_kernel<<<2048, 256>>>(a.get(), samples, positions, i, in.a_row, in.a_sample, 2 * seed,
                               1.0f, kind, false);
    fill_kernel<<<2048, 256>>>(g.get(), samples, positions, o, in.g_row, in.g_sample, 2 * seed + 1,
                               0.02f, kind, true);
    cuda(cudaGetLastError(), "fill");
  }

  Buffer<__nv_bfloat16> a, g;
  SampleOperands in;
};

/// value = g_b^T a_b and magnitude = the same sum without signs, [samples, o, i].
__global__ void exact_gradient_kernel(SampleOperands in, double* value, double* magnitude) {
  const int64_t column = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t row = blockIdx.y, sample = blockIdx.z;
  if (column >= in.i) return;
  const auto* a = static_cast<const __nv_bfloat16*>(in.a) + sample * in.a_sample + column;
  const auto* g = static_cast<const __nv_bfloat16*>(in.g) + sample * in.g_sample + row;
  double sum = 0, size = 0;
  for (int64_t t = 0; t < in.positions; ++t) {
    // Exact: two factors of 8 bits.
    const double product = __bfloat162float(a[t * in.a_row]) * __bfloat162float(g[t * in.g_row]);
    sum += product;
    size += fabs(product);
  }
  const int64_t at = (sample * in.o + row) * in.i + column;
  value[at] = sum;
  magnitude[at] = size;
}

struct Exact {
  explicit Exact(const SampleOperands& in)
      : value(in.samples * in.o * in.i), magnitude(in.samples * in.o * in.i) {
    const dim3 grid(static_cast<unsigned>((in.i + 127) / 128), static_cast<unsigned>(in.o),
                    static_cast<unsigned>(in.samples));
    exact_gradient_kernel<<<grid, 128>>>(in, value.get(), magnitude.get());
    cuda(cudaDeviceSynchronize(), "exact gradient");
  }
  Buffer<double> value, magnitude;
};

/// The larger error; NaN is the largest.
__host__ __device__ inline double worse(double worst, double error) {
  if (error <= worst) return worst;
  return error == error ? error : INFINITY;
}

/// A tensor-core sum over T positions errs by at most this share of the sum without signs.
inline double accumulation_error(int64_t positions) {
  return (static_cast<double>(positions) / 16 + 2) * 0x1p-23;
}

class Report {
 public:
  /// One line per case; `allowed` and `error` in the same unit.
  void line(const std::string& what, double error, double allowed, const std::string& note = "") {
    const bool passed = error <= allowed;  // false for NaN
    std::printf("%s  %-78s error %.3e  allowed %.1e%s%s\n", passed ? "PASS" : "FAIL", what.c_str(),
                error, allowed, note.empty() ? "" : "  ", note.c_str());
    failed_ += !passed;
    ++cases_;
  }
  int finish() const {
    std::printf("%d cases, %d failed\n", cases_, failed_);
    return failed_ == 0 ? 0 : 1;
  }
  bool failed() const { return failed_ > 0; }

 private:
  int cases_ = 0, failed_ = 0;
};

struct Contender {
  std::string name;
  std::function<void()> run;
  double work = 0;  ///< floating-point operations, or bytes
  std::vector<float> ms{};
};

// Keeps the stream busy while the host prepares the launch to be timed.
__global__ void hold_kernel(uint64_t nanoseconds) {
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

/// Medians over rounds in which all take turns: clock changes affect all alike.
inline void race(const char* title, std::vector<Contender>& contenders, const char* unit,
                 int rounds = 15) {
  cudaEvent_t start, stop;
  cuda(cudaEventCreate(&start), "event");
  cuda(cudaEventCreate(&stop), "event");
  for (int round = -2; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      hold_kernel<<<1, 1>>>(300000);
      cudaEventRecord(start);
      contender.run();
      cudaEventRecord(stop);
      cuda(cudaEventSynchronize(stop), contender.name.c_str());
      float ms = 0;
      cudaEventElapsedTime(&ms, start, stop);
      if (round >= 0) contender.ms.push_back(ms);
    }
  }
  std::printf("%s\n", title);
  for (Contender& contender : contenders) {
    std::sort(contender.ms.begin(), contender.ms.end());
    const double ms = contender.ms[contender.ms.size() / 2];
    std::printf("  %-44s %9.4f ms (%.4f ... %.4f)  %7.2f %s\n", contender.name.c_str(), ms,
                contender.ms.front(), contender.ms.back(), contender.work / ms * 1e-9, unit);
  }
  std::fflush(stdout);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
}

struct Layer {
  int input;  ///< layers with the same number share their inputs
  int64_t i, o;
};

inline std::vector<Layer> llama_block() {
  return {{0, 4096, 4096},  {0, 4096, 1024},  {0, 4096, 1024}, {1, 4096, 4096},
          {2, 4096, 14336}, {2, 4096, 14336}, {3, 14336, 4096}};
}
inline std::vector<Layer> dit_block() {
  return {{0, 1024, 3072}, {1, 1024, 1024}, {2, 1024, 4096}, {3, 4096, 1024}};
}

/// Operands of a block's layers; larger than L2 together.
struct Block {
  Block(const std::vector<Layer>& layers, int64_t samples, int64_t positions) {
    uint64_t seed = 1000;
    std::vector<int> first_with(layers.size(), -1);
    for (const Layer& layer : layers) {
      // A shared input is drawn with its first layer; the others get an empty one.
      const bool known = first_with[static_cast<size_t>(layer.input)] >= 0;
      parts.emplace_back(samples, positions, layer.i, layer.o, ++seed);
      SampleOperands in = parts.back().in;
      if (known)
        in.a = parts[static_cast<size_t>(first_with[static_cast<size_t>(layer.input)])].in.a;
      else
        first_with[static_cast<size_t>(layer.input)] = static_cast<int>(parts.size()) - 1;
      problems.push_back(in);
      parameters += layer.i * layer.o;
      flops += 2.0 * static_cast<double>(samples * positions * layer.i * layer.o);
    }
  }
  std::vector<Operands> parts;
  std::vector<SampleOperands> problems;
  int64_t parameters = 0;
  double flops = 0;
};

}  // namespace moonshard::kernels::lab
