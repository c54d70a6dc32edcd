// What the labs of the fused elementwise kernels share: arrays on the device with guards around
// them, fresh random data, the comparison with a double-precision reference, and the clock. One
// include per program.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/number_format.h"

namespace moonshard::kernels::lab {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "lab: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
constexpr NumberFormat format_of() {
  return sizeof(T) == 4 ? NumberFormat::Float32 : NumberFormat::Bfloat16;
}

template <class T>
const char* name_of() {
  return sizeof(T) == 4 ? "float32" : "bfloat16";
}

/// The distance of neighbouring numbers of the dtype near 1.
template <class T>
constexpr double unit_of() {
  return sizeof(T) == 4 ? 1.1920929e-7 : 0.0078125;
}

template <class T>
double rounded(double value) {
  return static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(value))));
}

/// Numbers on the device, poisoned (all bits set: not a number) and with a poisoned guard on both
/// sides. `shift` numbers before the data put it on an address that is no multiple of 16.
template <class T>
class Array {
 public:
  static constexpr int64_t kGuard = 64;

  explicit Array(int64_t count, int64_t shift = 0) : count_(count), shift_(shift) {
    check(cudaMalloc(&memory_, bytes()), "cudaMalloc");
    poison();
  }
  ~Array() { cudaFree(memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return memory_ + kGuard + shift_; }
  int64_t count() const { return count_; }
  void poison() { check(cudaMemset(memory_, 0xff, bytes()), "cudaMemset"); }

  void write(const std::vector<double>& values) {
    std::vector<T> narrow(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      narrow[i] = static_cast<T>(static_cast<float>(values[i]));
    check(cudaMemcpy(data(), narrow.data(), narrow.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  /// The data; says so and fails when a guard was overwritten.
  std::vector<double> read(bool& guards_hold) const {
    std::vector<T> all(count_ + 2 * kGuard + shift_);
    check(cudaMemcpy(all.data(), memory_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::vector<double> values(count_);
    for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
      const int64_t place = i - kGuard - shift_;
      if (place >= 0 && place < count_) {
        values[place] = static_cast<double>(static_cast<float>(all[i]));
      } else {
        T poisoned;
        std::memset(&poisoned, 0xff, sizeof poisoned);
        if (std::memcmp(&poisoned, &all[i], sizeof poisoned) != 0) guards_hold = false;
      }
    }
    return values;
  }

 private:
  size_t bytes() const { return (count_ + 2 * kGuard + shift_) * sizeof(T); }
  int64_t count_, shift_;
  T* memory_ = nullptr;
};

/// Numbers of the dtype, from N(0, std^2), as doubles.
template <class T>
std::vector<double> random_numbers(int64_t count, double std = 1, double mean = 0) {
  static std::mt19937_64 generator(20250815);
  std::normal_distribution<double> normal(mean, std);
  std::vector<double> values(count);
  for (double& value : values) value = rounded<T>(normal(generator));
  return values;
}

class Report {
 public:
  /// |got - want| <= relative |want| + absolute, everywhere, and nothing that is not a number.
  void compare(const std::string& what, const std::vector<double>& got,
               const std::vector<double>& want, double relative, double absolute,
               bool guards_hold = true) {
    double worst = 0;
    int64_t place = -1;
    for (size_t i = 0; i < want.size(); ++i) {
      const double allowed = relative * std::fabs(want[i]) + absolute;
      const double share = std::fabs(got[i] - want[i]) / allowed;
      if (!(share <= worst)) {
        worst = std::isnan(share) ? HUGE_VAL : share;
        place = static_cast<int64_t>(i);
      }
    }
    const bool good = worst <= 1 && got.size() == want.size() && guards_hold;
    std::printf("%s  %-58s worst %.3f of the tolerance", good ? "PASS" : "FAIL", what.c_str(),
                worst);
    if (!good && place >= 0)
      std::printf("  [%lld]: got %.9g, want %.9g", static_cast<long long>(place), got[place],
                  want[place]);
    if (!guards_hold) std::printf("  WROTE OUTSIDE OF ITS ARRAY");
    std::printf("\n");
    failures_ += !good;
  }
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

/// Median milliseconds of run(i), i = 0, 1, ...: the caller rotates its buffers by i, so that they
/// do not stay in the second-level cache.
inline double median_ms(const std::function<void(int)>& run, int repeats = 25) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  for (int i = 0; i < repeats + 5; ++i) {
    check(cudaEventRecord(start), "record");
    run(i);
    check(cudaEventRecord(stop), "record");
    check(cudaEventSynchronize(stop), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "elapsed");
    if (i >= 5) times.push_back(ms);
  }
  check(cudaEventDestroy(start), "event");
  check(cudaEventDestroy(stop), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// One line: time, speed, and the time that memory alone would take at 4.8 TB/s (H200).
inline void print_speed(const std::string& what, double ms, double bytes) {
  std::printf("%-60s %8.4f ms  %5.2f TB/s  (floor %.4f ms)\n", what.c_str(), ms, bytes / ms * 1e-9,
              bytes / 4.8e12 * 1e3);
}

/// --check alone: no benchmark.
inline bool wants_benchmark(int argc, char** argv) {
  return !(argc > 1 && std::strcmp(argv[1], "--check") == 0);
}

inline int finish(const Report& report) {
  check(cudaDeviceSynchronize(), "synchronize");
  std::printf("%d failures\n", report.failures());
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace moonshard::kernels::lab
