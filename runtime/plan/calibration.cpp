#include "runtime/plan/calibration.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/common/choice.h"
#include "kernels/fused_update/fused_update.h"
#include "runtime/base/check.h"
#include "runtime/core/allocators.h"
#include "runtime/core/device.h"
#include "runtime/experiment/experiment.h"
#include "runtime/models/blocks/attention.h"
#include "runtime/privacy/norm_cost.h"
#include "runtime/privacy/timed_ways.h"
#include "runtime/profile/host_memory.h"
#include "runtime/profile/kernel_timer.h"
#include "runtime/profile/utilization.h"

namespace moonshard::plan {
namespace {

using Clock = std::chrono::steady_clock;

// Seconds of one call, as it is when many follow each other: a GPU that works on end, as training
// does, is slower than in a short burst (products in bursts of 20 ms made predictions worse).
class Stopwatch {
 public:
  Stopwatch(c10::Device device, double seconds) : device_(device), seconds_(seconds) {}

  double operator()(const std::function<void()>& once) const {
    once();
    wait();
    int64_t count = 1;
    while (true) {
      const auto began = Clock::now();
      for (int64_t i = 0; i < count; ++i) once();
      wait();
      const double took = std::chrono::duration<double>(Clock::now() - began).count();
      if (took >= seconds_ || count > 1'000'000) return took / static_cast<double>(count);
      count = std::max(count * 2, static_cast<int64_t>(static_cast<double>(count) * seconds_ * 1.2 /
                                                       std::max(took, 1e-6)));
    }
  }

 private:
  void wait() const {
    if (device_.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard(device_.type());
    guard.synchronizeStream(guard.getStream(device_));
  }

  c10::Device device_;
  double seconds_;
};

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return fmt::format("CPU with {} threads", at::get_num_threads());
}

class Calibration {
 public:
  Calibration(c10::Device device, double seconds, CalibrationProgress progress)
      : device_(device),
        is_gpu_(device.is_cuda()),
        progress_(std::move(progress)),
        // About 120 timings on a GPU and 60 on a CPU, each warmed up and tried in growing counts.
        time_(device, seconds / (is_gpu_ ? 260 : 160)) {}

  MachineProfile run() {
    MachineProfile profile;
    profile.device = is_gpu_ ? device_name("cuda") : device_name("cpu");
    profile.name = "this machine";
    profile.is_measured = true;
    profile.is_gpu = is_gpu_;
    profile.fixed_segments = is_gpu_ && !segments_grow();
    if (is_gpu_) profile.in_step = InStep();
    profile.source = "measured here by moonshard plan --calibrate";
    const at::Tensor like = at::zeros({1}, at::TensorOptions().device(device_));
    profile.memory_bytes =
        is_gpu_ ? static_cast<double>(kernels::memory_around(like))
                : static_cast<double>(std::max<int64_t>(1, profile::free_host_memory().bytes));
    profile.context_bytes = is_gpu_ ? 68e6 : 1e6;
    if (!is_gpu_) measure_host(profile);
    measure_elements(profile);
    measure_update(profile);
    measure_copies(profile);
    for (const auto type : {at::kBFloat16, at::kFloat}) {
      DtypeRates& rates = profile.dtypes[dtype_name(type)];
      measure_products(type, rates);
      measure_attention(type, rates);
      measure_engines(type, rates, like);
    }
    measure_launches(profile);
    return profile;
  }

 private:
  at::TensorOptions options(at::ScalarType type) const {
    return at::TensorOptions().dtype(type).device(device_);
  }
  void tell(const std::string& what) const {
    if (progress_) progress_(what);
  }

  void measure_host(MachineProfile& profile) const {
    tell("memory that the system gives anew");
    profile.cores = std::max(1U, std::thread::hardware_concurrency());
    profile.threads = at::get_num_threads();
    constexpr size_t kBytes = 1 << 25;
    const auto written = [&](int times) {
      return time_([&] {
        void* fresh =
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MS_CHECK(fresh != MAP_FAILED, "plan: calibration: expected {} MiB of memory, got none",
                 kBytes >> 20);
        for (int i = 0; i < times; ++i) std::memset(fresh, i + 1, kBytes);
        munmap(fresh, kBytes);
      });
    };
    const double once = written(1), again = written(2) - once;
    profile.fresh_per_s = static_cast<double>(kBytes) / std::max(once - again, 0.05 * once);
  }

  void measure_elements(MachineProfile& profile) const {
    tell("element-wise operations");
    const int64_t n = is_gpu_ ? 1 << 27 : 1 << 23;
    // A CPU adds numbers of 16 bits one by one.
    const auto type = is_gpu_ ? at::kBFloat16 : at::kFloat;
    const at::Tensor a = at::ones({n}, options(type)), b = at::ones_like(a),
                     out = at::empty_like(a);
    const double bytes = 3 * static_cast<double>(a.nbytes());
    profile.element_per_s = bytes / time_([&] { at::add_out(const_cast<at::Tensor&>(out), a, b); });
    const at::Tensor small = at::ones({64}, options(at::kFloat));
    profile.gap_us = 1e6 * time_([&] { at::add(small, small); }) / 2;
  }

  double update_seconds_of(c10::Device where, int64_t n, bool noise, const Stopwatch& time) const {
    const auto own = at::TensorOptions().device(where);
    const kernels::ChaChaKey secret{{1, 2, 3, 4, 5, 6, 7, 8}};
    kernels::UpdateNoise drawn;
    drawn.std = noise ? 1 : 0;
    drawn.secret = &secret;
    const at::Tensor value = at::zeros({n}, own.dtype(at::kFloat)), grad = at::zeros_like(value);
    return time([&] {
      std::vector<kernels::UpdatePart> parts(1);
      parts[0].value = value;
      parts[0].grad = grad;
      kernels::fused_update(parts, {}, drawn);
    });
  }

  void measure_update(MachineProfile& profile) const {
    tell("the optimizer's pass, with and without noise");
    const int64_t n = is_gpu_ ? 1 << 27 : 1 << 21;
    const double plain = update_seconds_of(device_, n, false, time_);
    const double noised = update_seconds_of(device_, n, true, time_);
    const auto elements = static_cast<double>(n);
    constexpr double kBytes = 12;  // value read and written, gradient read
    profile.update_per_s = kBytes * elements / plain;
    // A GPU draws beside its memory's traffic: how fast, shows where there is none. So many numbers
    // lie in its cache.
    constexpr int64_t kCached = 1 << 21;
    const double drawn =
        is_gpu_ ? update_seconds_of(device_, kCached, true, time_) / static_cast<double>(kCached)
                : std::max(noised - plain, 0.01 * plain) / elements;
    profile.noise_per_s = 0.25 / drawn;
    constexpr int64_t kOnHost = 1 << 27;  // more than any cache holds
    const c10::Device host(c10::kCPU);
    profile.host_update_per_s =
        is_gpu_ ? kBytes * static_cast<double>(kOnHost) /
                      update_seconds_of(host, kOnHost, false, Stopwatch(host, 0.05))
                : profile.update_per_s;
  }

  // Both directions at once, as with offload.
  void measure_copies(MachineProfile& profile) const {
    profile.to_device_per_s = profile.to_host_per_s = profile.element_per_s / 2;
    if (!is_gpu_) return;
    tell("copies between host and device");
    constexpr int64_t kBytes = 1 << 28;
    const auto host = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
    const at::Tensor from = at::zeros({kBytes}, host), to = at::zeros({kBytes}, host);
    const at::Tensor in = at::zeros({kBytes}, options(at::kByte)), out = at::zeros_like(in);
    const c10::impl::VirtualGuardImpl guard(device_.type());
    const c10::Stream up = guard.getNewStream(device_, 0), down = guard.getNewStream(device_, 0);
    constexpr int kTimes = 8;
    guard.synchronizeDevice(device_.index());
    const auto began = Clock::now();
    for (int i = 0; i < kTimes; ++i) {
      {
        const c10::StreamGuard stream(up);
        in.copy_(from, true);
      }
      const c10::StreamGuard stream(down);
      to.copy_(out, true);
    }
    guard.synchronizeStream(up);
    const double first = std::chrono::duration<double>(Clock::now() - began).count();
    guard.synchronizeStream(down);
    const double second = std::chrono::duration<double>(Clock::now() - began).count();
    profile.to_device_per_s = kTimes * static_cast<double>(kBytes) / first;
    profile.to_host_per_s = kTimes * static_cast<double>(kBytes) / second;
  }

  struct Product {
    int64_t m, n, k;
  };
  std::vector<Product> products(at::ScalarType type) const {
    if (!is_gpu_)
      return {{16, 64, 64},     {64, 64, 64},       {64, 256, 64},    {256, 256, 256},
              {64, 512, 512},   {512, 512, 512},    {512, 2048, 512}, {512, 512, 2048},
              {64, 2048, 2048}, {1024, 1024, 1024}, {4, 512, 512},    {256, 4096, 1024}};
    std::vector<Product> list;
    const bool narrow = type == at::kBFloat16;
    for (const int64_t m : narrow ? std::vector<int64_t>{512, 2048, 8192, 32768}
                                  : std::vector<int64_t>{1024, 16384}) {
      for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{1024, 1024},
                                                                         {1152, 1152},
                                                                         {3456, 1152},
                                                                         {4608, 1152},
                                                                         {1152, 4608},
                                                                         {2048, 2048},
                                                                         {8192, 2048},
                                                                         {2048, 8192},
                                                                         {4096, 4096},
                                                                         {14336, 4096},
                                                                         {4096, 14336}}) {
        if (!narrow && n * k > 5'000'000) continue;
        list.push_back({m, n, k});
      }
    }
    // As weight gradients are: long sums into a matrix of the weight's size.
    for (const int64_t k : {2048, 8192}) {
      for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{
               {4096, 4096}, {14336, 4096}, {2048, 2048}, {8192, 2048}, {1024, 1024}, {4608, 1152}})
        if (narrow || m * n < 5'000'000) list.push_back({m, n, k});
    }
    list.push_back({8, 4096, 4096});
    list.push_back({16, 6912, 1152});
    if (narrow) list.push_back({8192, 128256, 2048});
    return list;
  }

  void measure_products(at::ScalarType type, DtypeRates& rates) const {
    for (const Product& p : products(type)) {
      tell(fmt::format("product of {} x {} x {} in {}", p.m, p.n, p.k, dtype_name(type)));
      const at::Tensor a = at::randn({p.m, p.k}, options(type)),
                       b = at::randn({p.n, p.k}, options(type));
      at::Tensor out = at::empty({p.m, p.n}, options(type));
      const double s = time_([&] { at::mm_out(out, a, b.t()); });
      const double work = 2 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k);
      rates.products.push_back(
          {static_cast<double>(p.m), static_cast<double>(p.n), static_cast<double>(p.k), work / s});
    }
  }

  // As a model runs it: by the faster of LibTorch's kernels, on heads beside each other in a
  // token's row.
  void measure_attention(at::ScalarType type, DtypeRates& rates) const {
    struct Heads {
      int64_t width, queries, keys;
      bool causal;
      std::vector<int64_t> lengths;
    };
    // Images have heads of 64 and 72, Gemma few of 256: kernels for either are others.
    const std::vector<Heads> halves{{64, 16, 16, true, {256, 1024, 2048, 4096, 16384}},
                                    {128, 16, 16, true, {256, 1024, 2048, 4096, 16384}},
                                    {256, 4, 1, true, {1024, 4096}},
                                    {64, 16, 16, false, {256, 1024}},
                                    {72, 16, 16, false, {256, 1024}}};
    const std::vector<Heads> wide{{64, 16, 16, false, {256, 1024, 2048, 4096}},
                                  {72, 16, 16, false, {256, 1024}},
                                  {128, 16, 16, false, {256, 1024, 2048, 4096}}};
    const std::vector<Heads> on_cpu{{64, 2, 2, type == at::kBFloat16, {64, 256}},
                                    {128, 2, 2, type == at::kBFloat16, {64, 256}}};
    for (const Heads& heads : !is_gpu_ ? on_cpu : type == at::kBFloat16 ? halves : wide)
      for (const int64_t T : heads.lengths) {
        tell(fmt::format("attention over {} positions, heads of {}, in {}", T, heads.width,
                         dtype_name(type)));
        const int64_t samples = std::max<int64_t>(1, (is_gpu_ ? 8192 : 128) / T);
        const auto make = [&](int64_t count) {
          return at::randn({samples, T, count, heads.width}, options(type))
              .transpose(1, 2)
              .requires_grad_(true);
        };
        const at::Tensor q = make(heads.queries), k = make(heads.keys), v = make(heads.keys);
        const auto forward = [&] {
          return models::attention(q, k, v, heads.causal, models::AttentionKind::Flash);
        };
        const double once = time_([&] {
          const at::NoGradGuard no_grad;
          forward();
        });
        const at::Tensor seed = at::randn_like(q).detach();
        const double both = time_([&] {
          const at::AutoGradMode enable(true);
          torch::autograd::grad({forward()}, {q, k, v}, {seed});
        });
        const double work = 4 * static_cast<double>(samples * heads.queries * heads.width) *
                            static_cast<double>(T) * static_cast<double>(T) *
                            (heads.causal ? 0.5 : 1);
        rates.attention.push_back(
            {static_cast<double>(T), static_cast<double>(heads.width), work / once,
             kAttentionBackward * work / std::max(both - once, 0.2 * both), heads.causal});
      }
  }

  // Rates in units of norm_cost.h, of a large layer. Where no kernels run, products are all there
  // is to them.
  void measure_engines(at::ScalarType type, DtypeRates& rates, const at::Tensor& like) const {
    double fastest = 0;
    for (const ProductRate& rate : rates.products) fastest = std::max(fastest, rate.per_s);
    rates.ghost = rates.flash = rates.sum = rates.keep = fastest;
    if (!is_gpu_ || type != at::kBFloat16) return;
    tell("the engines' norms and sums");
    constexpr auto kSamples = TimedEngines::kSamples, kPositions = TimedEngines::kPositions,
                   kWidth = TimedEngines::kWidth;
    const std::vector<int64_t> outs(TimedEngines::kLayers, kWidth);
    const auto times = privacy::timed_ways({kSamples, kPositions, kWidth, outs}, like);
    if (!times) return;
    privacy::LayerShape shape{kSamples, kPositions, kWidth, kWidth, 2, true};
    shape.by_kernel = true;
    shape.readers = static_cast<double>(outs.size());
    const auto layers = static_cast<double>(outs.size());
    const double bytes = static_cast<double>(kWidth * kWidth) * 4;
    rates.ghost = layers * privacy::ghost_cost(shape) / (times->ghost / 1e3);
    rates.flash = layers * privacy::width_cost(shape) / (times->flash / 1e3);
    rates.keep = layers * privacy::keep_compact_cost(shape) / (times->keep / 1e3);
    const double products = 2.0 * kSamples * kPositions * kWidth * kWidth;
    const double store = bytes / 4e12;
    rates.sum = layers * products / std::max(1e-9, times->sum / 1e3 - layers * store);
  }

  // A step of layers so small that nothing but their launches counts.
  void measure_launches(MachineProfile& profile) const {
    tell("launches");
    experiment::ExperimentOptions tiny;
    tiny.model = "llama3-tiny";
    tiny.num_layers = 8;
    tiny.last_block = "all";
    tiny.batch_size = 1;
    tiny.seq_length = 8;
    tiny.device = is_gpu_ ? "cuda" : "cpu";
    tiny.compile = "no";
    tiny.profile = "off";
    tiny.seed = 1;
    tiny.warmup = 20;  // until the processor runs at its speed
    tiny.iters = 40;
    const records::Result result = experiment::measure_experiment(tiny);
    constexpr double kLayers = 8 * 9, kPasses = 3;  // of a block: 7 matrices, 2 norms
    profile.launch_us = 1e3 * result.metrics.median_time_ms / (kLayers * kPasses);
  }

  c10::Device device_;
  bool is_gpu_;
  CalibrationProgress progress_;
  Stopwatch time_;
};

}  // namespace

std::string device_name(const std::string& device) {
  const c10::Device where = resolve_device(device);
  if (!where.is_cuda()) return cpu_name();
  const std::string machine = profile::machine_of(where);
  return machine.substr(0, machine.find(','));
}

MachineProfile calibrate(const std::string& device, double seconds,
                         const CalibrationProgress& progress) {
  MS_CHECK(seconds >= 1 && seconds <= 3600,
           "plan: calibration: expected 1 to 3600 seconds, got {:g}", seconds);
  constexpr double kBusy = 20;  // of a core
  const c10::Device where = resolve_device(device);
  profile::UtilizationSampler sampler(where);
  MachineProfile measured = Calibration(where, seconds, progress).run();
  const double others = sampler.finish().other_cpu_percent.value_or(0);
  if (others > kBusy && progress)
    progress(
        fmt::format("other processes took {:.0f} % of a core meanwhile: times may be too long; "
                    "calibrate again when the machine is idle",
                    others));
  return measured;
}

}  // namespace moonshard::plan
