#include "runtime/profile/utilization.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/profile/nvml.h"

namespace moonshard::profile {
namespace {

using Clock = std::chrono::steady_clock;

// CPU time of all processes of the machine: user, nice, system, irq, softirq and steal of the first
// line of /proc/stat.
std::optional<double> busy_seconds_of_machine() {
  std::ifstream in("/proc/stat");
  std::string word;
  double ticks[8] = {};
  if (!(in >> word) || word != "cpu") return std::nullopt;
  for (double& value : ticks)
    if (!(in >> value)) return std::nullopt;
  constexpr size_t kIdle = 3, kWaiting = 4;
  double busy = 0;
  for (size_t i = 0; i < std::size(ticks); ++i)
    if (i != kIdle && i != kWaiting) busy += ticks[i];
  return busy / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The GPU with this LibTorch index, among those visible to this process.
std::optional<Gpu> gpu_of(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  const std::vector<Gpu> visible =
      visible_gpus(list_gpus().gpus, std::getenv("CUDA_VISIBLE_DEVICES"));
  const auto index = static_cast<size_t>(device.index());
  if (index >= visible.size()) return std::nullopt;
  return visible[index];
}

struct Peak {
  const char* name;  ///< part of the driver's name of the GPU
  double float32, bfloat16;
};
// Teraflop/s, dense.
constexpr Peak kPeaks[] = {
    {"H200", 66.9, 989.4}, {"H100 PCIe", 51.2, 756.0}, {"H100 NVL", 60.0, 835.5},
    {"H100", 66.9, 989.4}, {"H20", 44.0, 148.0},       {"A100", 19.5, 311.8},
    {"A40", 37.4, 149.7},  {"A10", 31.2, 125.0},       {"L40S", 91.6, 362.1},
    {"L4", 30.3, 121.0},   {"RTX 4090", 82.6, 165.2},
};

// Whole words only: an L40 is no L4, an A10G no A10.
bool has_words(const std::string& text, const std::string& words) {
  const auto is_letter = [&](size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + words.size())) return true;
  return false;
}

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct UtilizationSampler::State {
  Clock::time_point start = Clock::now();
  double cpu_start = cpu_seconds();
  std::optional<double> machine_start = busy_seconds_of_machine();
  std::mutex mutex;
  std::condition_variable wake;
  bool ends = false;
  double sum = 0;
  int64_t samples = 0;
  std::thread thread;
};

UtilizationSampler::UtilizationSampler(c10::Device device) : state_(std::make_unique<State>()) {
  const std::optional<Gpu> gpu = gpu_of(device);
  if (!gpu) return;
  state_->thread = std::thread([state = state_.get(), index = gpu->index] {
    std::unique_lock lock(state->mutex);
    while (
        !state->wake.wait_for(lock, std::chrono::milliseconds(100), [&] { return state->ends; })) {
      if (const auto percent = gpu_utilization_percent(index)) {
        state->sum += *percent;
        ++state->samples;
      }
    }
  });
}

UtilizationSampler::~UtilizationSampler() {
  finish();
}

Utilization UtilizationSampler::finish() {
  if (state_->thread.joinable()) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->ends = true;
    }
    state_->wake.notify_all();
    state_->thread.join();
  }
  Utilization result;
  result.wall_s = std::chrono::duration<double>(Clock::now() - state_->start).count();
  const double own = cpu_seconds() - state_->cpu_start;
  if (result.wall_s > 0) result.cpu_percent = 100 * own / result.wall_s;
  const std::optional<double> machine = busy_seconds_of_machine();
  // The kernel counts in ticks of a hundredth of a second: shorter periods say nothing.
  if (machine && state_->machine_start && result.wall_s >= 0.05)
    result.other_cpu_percent =
        100 * std::max(0.0, *machine - *state_->machine_start - own) / result.wall_s;
  if (state_->samples > 0) result.gpu_percent = state_->sum / static_cast<double>(state_->samples);
  return result;
}

MachineLoad machine_load(c10::Device device) {
  MachineLoad load;
  load.cores = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  double average = 0;
  if (::getloadavg(&average, 1) == 1) load.load_average = average;
  if (const std::optional<Gpu> gpu = gpu_of(device)) {
    load.gpu_percent = gpu->utilization_percent;
    load.other_gpu_processes =
        std::count_if(gpu->processes.begin(), gpu->processes.end(),
                      [](const GpuProcess& process) { return process.pid != ::getpid(); });
  }
  return load;
}

double peak_flops(c10::Device device, const std::string& dtype) {
  const std::optional<Gpu> gpu = gpu_of(device);
  return gpu ? peak_flops_of(gpu->name, dtype) : 0;
}

double peak_flops_of(const std::string& gpu_name, const std::string& dtype) {
  for (const Peak& peak : kPeaks) {
    if (!has_words(gpu_name, peak.name)) continue;
    if (dtype == "float32") return peak.float32 * 1e12;
    if (dtype == "bfloat16" || dtype == "float16") return peak.bfloat16 * 1e12;
  }
  return 0;
}

}  // namespace moonshard::profile
