// Utilisation over a period: this process's CPU time, and the GPU as its driver sees it (NVML),
// sampled by a separate thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace moonshard::profile {

/// Of a processor's cores, by all threads of this process so far.
double cpu_seconds();

struct Utilization {
  double wall_s = 0;
  double cpu_percent = 0;                   ///< of one core: 200 is two busy cores
  std::optional<double> gpu_percent;        ///< mean of the driver's samples; none without NVML
  std::optional<double> other_cpu_percent;  ///< of all other processes; none without /proc/stat
};

/// How busy the machine is at this moment, before our own work begins.
struct MachineLoad {
  double cores = 0;
  std::optional<double> load_average;  ///< of the last minute
  std::optional<double> gpu_percent;   ///< none without NVML
  std::optional<int64_t> other_gpu_processes;
};
MachineLoad machine_load(c10::Device device);

class UtilizationSampler {
 public:
  /// Begins; samples about ten times a second.
  explicit UtilizationSampler(c10::Device device);
  ~UtilizationSampler();
  Utilization finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The device's peak operations per second in this dtype; 0 if unknown. Dense figures of the
/// makers' data sheets: float32 without TF32, bfloat16 on tensor cores.
double peak_flops(c10::Device device, const std::string& dtype);
/// The same for a GPU by the driver's name.
double peak_flops_of(const std::string& gpu_name, const std::string& dtype);

}  // namespace moonshard::profile
