// What matrix products cost in energy: cuBLAS's and ours, on a block of Llama 8B. A GPU that
// multiplies all the time runs at its power limit, and lowers its clock to stay there: the time of
// such work is its energy over the limit, and what fills gaps between products gains little.
//
//   energy_lab [samples] [positions]      8 and 1024 by default
//
// Each line repeats one kind of work for a second and a half, and takes energy and clock of the
// last second from the driver.
#include <cublas_v2.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/sample_lab.cuh"
#include "kernels/flash_norm/flash_norm_launch.h"
#include "kernels/ghost_norm/ghost_norm_launch.h"

namespace moonshard::kernels {
namespace {

using lab::Buffer;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::printf("FAIL %s: %s\n", what, cublasGetStatusString(status));
  std::exit(1);
}

// Joules since the driver was loaded, and the multiprocessors' clock in MHz. The driver's library
// is loaded at run time: no toolkit needs it.
class Meter {
 public:
  Meter() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (library_ == nullptr) fail("loading libnvidia-ml.so.1", -1);
    call<>("nvmlInit_v2");
    call<unsigned, void**>("nvmlDeviceGetHandleByIndex_v2", 0u, &device_);
  }
  double limit() const {
    unsigned milliwatts = 0;
    call<void*, unsigned*>("nvmlDeviceGetEnforcedPowerLimit", device_, &milliwatts);
    return milliwatts * 1e-3;
  }
  double joules() const {
    unsigned long long millijoules = 0;
    call<void*, unsigned long long*>("nvmlDeviceGetTotalEnergyConsumption", device_, &millijoules);
    return static_cast<double>(millijoules) * 1e-3;
  }
  unsigned clock() const {
    constexpr int kMultiprocessors = 1;
    unsigned mhz = 0;
    call<void*, int, unsigned*>("nvmlDeviceGetClockInfo", device_, kMultiprocessors, &mhz);
    return mhz;
  }

 private:
  static void fail(const char* what, int code) {
    std::printf("FAIL %s: %d\n", what, code);
    std::exit(1);
  }
  template <class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    const int code = function == nullptr ? -1 : function(arguments...);
    if (code != 0) fail(name, code);
  }

  void* library_;
  void* device_ = nullptr;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs it for so long; how often it ran.
int repeat(const std::function<void()>& run, double seconds) {
  constexpr int kAhead = 8;  // of the GPU
  const double end = seconds_now() + seconds;
  int runs = 0;
  while (seconds_now() < end) {
    for (int n = 0; n < kAhead; ++n, ++runs) run();
    lab::cuda(cudaDeviceSynchronize(), "run");
  }
  return runs;
}

void measure(const Meter& meter, const char* name, double flops, const std::function<void()>& run) {
  repeat(run, 0.5);
  const double joules = meter.joules(), start = seconds_now();
  int runs = repeat(run, 0.5);
  const unsigned clock = meter.clock();
  runs += repeat(run, 0.5);
  const double seconds = seconds_now() - start, used = meter.joules() - joules;
  std::printf("  %-44s %8.3f ms  %6.1f TFLOP/s  %5.0f W  %4u MHz  %.3f pJ/FLOP\n", name,
              seconds / runs * 1e3, flops * runs / seconds * 1e-12, used / seconds, clock,
              used / (flops * runs) * 1e12);
  std::fflush(stdout);
}

// Products of all layers of a block as a plain step has them, in row-major terms.
class Plain {
 public:
  explicit Plain(const lab::Block& block)
      : block_(block),
        rows_(block.problems.front().samples * block.problems.front().positions),
        room_(64 << 20) {
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasSetWorkspace(handle_, room_.get(), 64 << 20), "workspace");
    for (const SampleOperands& in : block.problems) {
      weights_.emplace_back(1, in.o, in.i, 1, 7);
      sums_.emplace_back(in.o * in.i);
      widest_ = std::max({widest_, in.i, in.o});
    }
    out_ = Buffer<__nv_bfloat16>(rows_ * widest_);
  }

  void forward() {  // [rows, o] = a w^T
    for (size_t n = 0; n < weights_.size(); ++n) {
      const SampleOperands& in = block_.problems[n];
      product(CUBLAS_OP_T, CUBLAS_OP_N, in.o, rows_, in.i, weight(n), in.i, in.a, in.i, out_.get(),
              CUDA_R_16BF, in.o);
    }
  }
  void input_gradients() {  // [rows, i] = g w
    for (size_t n = 0; n < weights_.size(); ++n) {
      const SampleOperands& in = block_.problems[n];
      product(CUBLAS_OP_N, CUBLAS_OP_N, in.i, rows_, in.o, weight(n), in.i, in.g, in.o, out_.get(),
              CUDA_R_16BF, in.i);
    }
  }
  void weight_gradients() {  // [o, i] = g^T a in float32
    for (size_t n = 0; n < weights_.size(); ++n) {
      const SampleOperands& in = block_.problems[n];
      product(CUBLAS_OP_N, CUBLAS_OP_T, in.i, in.o, rows_, in.a, in.i, in.g, in.o, sums_[n].get(),
              CUDA_R_32F, in.i);
    }
  }
  float* sum(size_t n) { return sums_[n].get(); }

 private:
  // [i, o] of random numbers: the input of one position each.
  const void* weight(size_t n) const { return weights_[n].a.get(); }
  void product(cublasOperation_t x_turned, cublasOperation_t y_turned, int64_t m, int64_t n,
               int64_t k, const void* x, int64_t x_row, const void* y, int64_t y_row, void* out,
               cudaDataType format, int64_t out_row) {
    const float one = 1, zero = 0;
    check(cublasGemmEx(handle_, x_turned, y_turned, static_cast<int>(m), static_cast<int>(n),
                       static_cast<int>(k), &one, x, CUDA_R_16BF, static_cast<int>(x_row), y,
                       CUDA_R_16BF, static_cast<int>(y_row), &zero, out, format,
                       static_cast<int>(out_row), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  const lab::Block& block_;
  int64_t rows_, widest_ = 0;
  Buffer<char> room_;
  cublasHandle_t handle_ = nullptr;
  std::vector<lab::Operands> weights_;
  std::vector<Buffer<float>> sums_;
  Buffer<__nv_bfloat16> out_;
};

void measure_sums(const Meter& meter, const lab::Block& block, Plain& plain) {
  const int64_t samples = block.problems.front().samples;
  std::vector<ClippedSumProblem> problems;
  for (size_t n = 0; n < block.problems.size(); ++n)
    problems.push_back({block.problems[n], plain.sum(n), block.problems[n].i});
  const int count = static_cast<int>(problems.size());
  const ClippedSumPlan plan = plan_clipped_sum(problems.data(), count, {});
  Buffer<float> scratch(plan.scratch), factors(samples);
  std::vector<float> values(static_cast<size_t>(samples));
  for (size_t b = 0; b < values.size(); ++b) values[b] = 0.5f + 0.1f * static_cast<float>(b % 5);
  factors.write(values);
  measure(meter, "clipped sums", block.flops, [&] {
    launch_clipped_sum(problems.data(), count, factors.get(), false, plan, scratch.get(), nullptr);
  });
}

void measure_flash(const Meter& meter, const lab::Block& block, bool keep) {
  const int64_t samples = block.problems.front().samples;
  Buffer<uint16_t> kept(keep ? block.parameters * samples : 0);
  Buffer<float> units(keep ? block.parameters * samples / kUnitElements : 0);
  std::vector<FlashNormProblem> problems;
  int64_t used = 0;
  for (const SampleOperands& in : block.problems) {
    const int64_t of_sample = in.o * in.i / kUnitElements;
    problems.push_back({in});
    if (keep)
      problems.back() = {in, kept.get() + used, units.get() + used / kUnitElements, of_sample};
    used += in.samples * in.o * in.i;
  }
  const int count = static_cast<int>(problems.size());
  Buffer<double> scratch(flash_norm_scratch(problems.data(), count, GemmSchedule::Chosen));
  Buffer<double> squares(count * samples);
  measure(meter, keep ? "gradients of samples, kept" : "gradients of samples, norms alone",
          block.flops, [&] {
            launch_flash_norm(problems.data(), count, scratch.get(), squares.get(),
                              GemmSchedule::Chosen, nullptr);
          });
}

// Half of each symmetric product counts: what a norm needs.
void measure_ghost(const Meter& meter, const lab::Block& block) {
  const int64_t samples = block.problems.front().samples,
                positions = block.problems.front().positions;
  std::vector<GhostGroupView> groups;
  double columns = 0;
  int64_t row = 0;
  for (const SampleOperands& in : block.problems) {
    if (groups.empty() || groups.back().a.data != in.a) {
      groups.push_back({positions, {in.a, in.i, in.a_row, in.a_sample}, {}, {}});
      columns += static_cast<double>(in.i);
    }
    groups.back().g.push_back({in.g, in.o, in.g_row, in.g_sample});
    groups.back().rows.push_back(row++);
    columns += static_cast<double>(in.o);
  }
  Buffer<char> workspace(ghost_norm_sm90_workspace_bytes(groups, samples));
  Buffer<double> results(4 * row * samples);
  double* const at = results.get();
  const int64_t step = row * samples;
  const double useful = static_cast<double>(samples * positions * positions) * columns;
  measure(meter, "Gram products of samples, half counted", useful, [&] {
    launch_ghost_norm_sm90(groups, samples, {at, at + step, at + 2 * step, at + 3 * step},
                           workspace.get(), nullptr);
  });
}

}  // namespace
}  // namespace moonshard::kernels

int main(int argc, char** argv) {
  using namespace moonshard::kernels;
  const int64_t samples = argc > 1 ? std::atoll(argv[1]) : 8;
  const int64_t positions = argc > 2 ? std::atoll(argv[2]) : 1024;
  if (samples < 1 || positions < 1) {
    std::printf("energy_lab: expected numbers of samples and positions above 0\n");
    return 2;
  }
  const Meter meter;
  const lab::Block block(lab::llama_block(), samples, positions);
  Plain plain(block);
  std::printf(
      "A block of Llama 8B, %lld samples of %lld positions: %.2f TFLOP a product; limit %.0f W\n",
      static_cast<long long>(samples), static_cast<long long>(positions), block.flops * 1e-12,
      meter.limit());
  measure(meter, "cuBLAS, forward", block.flops, [&] { plain.forward(); });
  measure(meter, "cuBLAS, input gradients", block.flops, [&] { plain.input_gradients(); });
  measure(meter, "cuBLAS, weight gradients in float32", block.flops,
          [&] { plain.weight_gradients(); });
  measure_sums(meter, block, plain);
  measure_flash(meter, block, /*keep=*/false);
  if (samples <= 4) measure_flash(meter, block, /*keep=*/true);
  measure_ghost(meter, block);
  return 0;
}
