#include "runtime/plan/fit_check.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

#include "kernels/common/choice.h"
#include "runtime/analysis/savings.h"
#include "runtime/plan/prediction.h"
#include "runtime/profile/host_memory.h"
#include "runtime/profile/memory.h"

namespace moonshard::plan {
namespace {

constexpr double kMiB = 1048576.0;
// Of a predicted peak over the memory there is: predictions err by a few percent on GPUs, more on
// CPUs.
constexpr double kClearlyTooMuch = 1.5;

// Shapes and bytes need no rates; those of time only have to be there.
MachineProfile without_rates(bool is_gpu, double memory) {
  MachineProfile machine;
  machine.name = "this machine";
  machine.is_gpu = is_gpu;
  machine.memory_bytes = memory;
  machine.context_bytes = 0;
  machine.element_per_s = machine.update_per_s = machine.noise_per_s = 1e12;
  machine.launch_us = machine.gap_us = 1;
  machine.to_device_per_s = machine.to_host_per_s = machine.host_update_per_s = 1e10;
  DtypeRates rates;
  rates.products = {{1024, 1024, 1024, 1e14}};
  rates.attention = {{1024, 64, 1e14, 1e14}};
  rates.ghost = rates.flash = rates.sum = rates.keep = 1e14;
  machine.dtypes = {{"float32", rates}, {"bfloat16", rates}};
  return machine;
}

bool has_known_memory(const std::string& mode) {
  for (const char* known : {"none", "bookkeeping", "flash_bookkeeping", "ghost", "flash"})
    if (mode == known) return true;
  return false;
}

std::string size_text(double bytes) {
  return bytes >= kGiB ? fmt::format("{:.1f} GiB", bytes / kGiB)
                       : fmt::format("{:.1f} MiB", bytes / kMiB);
}

}  // namespace

double memory_for(const experiment::ExperimentOptions& options, c10::Device device) {
  if (device.is_cuda())
    return static_cast<double>(
        kernels::memory_around(at::empty({0}, at::TensorOptions().device(device))));
  if (options.memory_limit_mb > 0)
    return 0;  // the allocator refuses by itself, and nothing is killed
  const int64_t free = profile::free_host_memory().bytes;
  return free < 0 ? 0 : static_cast<double>(free);
}

std::optional<Refusal> refusal_of(const experiment::ExperimentOptions& options, c10::Device device,
                                  int ranks) {
  if (!options.check_memory) return {};
  const double memory = memory_for(options, device);
  if (memory <= 0) return {};
  Cluster cluster;
  cluster.machine = without_rates(device.is_cuda(), memory);
  cluster.gpus = ranks;
  experiment::ExperimentOptions planned = options;
  planned.compile = "no";
  const PlannedModel model(planned, planned.seq_length, device.is_cuda());
  const Prediction prediction = predict(model, planned, cluster);
  const double floor = prediction.memory.floor, peak = prediction.memory.peak;
  const double host = prediction.memory.host;
  const bool no_floor = floor > memory;
  const bool no_peak = has_known_memory(options.mode) && peak > kClearlyTooMuch * memory;
  const int64_t host_free = device.is_cuda() && host > 0 ? profile::free_host_memory().bytes : -1;
  const bool no_host = host_free >= 0 && host > static_cast<double>(host_free);
  if (!no_floor && !no_peak && !no_host) return {};

  Refusal refusal;
  refusal.needed = no_host ? host : no_floor ? floor : peak;
  refusal.free = no_host ? static_cast<double>(host_free) : memory;
  analysis::HeldMemory held;
  for (size_t i = 0; i < kHolders; ++i)
    if (prediction.memory.at_peak[i] > 0)
      refusal.owners.push_back({holder_name(static_cast<Holder>(i)), prediction.memory.at_peak[i]});
  held.options = experiment::experiment_schema().to_json(&options);
  held.owners = refusal.owners;
  held.ranks = ranks;
  refusal.savings = analysis::memory_savings(held);
  refusal.text = fmt::format(
      "{} cannot fit: expected at most {} on {}, got {} for {}; check_memory = false starts it all "
      "the same",
      options.model, size_text(refusal.free), no_host ? "the host" : device.str(),
      size_text(refusal.needed),
      no_host    ? "parameters, gradients and optimizer state in host memory"
      : no_floor ? "parameters, gradients and optimizer state alone"
                 : "a step");
  return refusal;
}

}  // namespace moonshard::plan
