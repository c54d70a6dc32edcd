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

// The cluster that options run on here, with memory alone known of it.
Cluster here_of(bool is_gpu, double memory, int ranks) {
  Cluster cluster;
  cluster.machine = without_rates(is_gpu, memory);
  cluster.gpus = ranks;
  return cluster;
}

experiment::ExperimentOptions planned_of(const experiment::ExperimentOptions& options) {
  experiment::ExperimentOptions planned = options;
  planned.compile = "no";
  planned.world = "auto";
  return planned;
}

// The largest micro-batch below the present one that is predicted to fit, and its peak; 0: none.
std::pair<int64_t, double> largest_batch(const PlannedModel& model,
                                         const experiment::ExperimentOptions& planned,
                                         const Cluster& cluster) {
  experiment::ExperimentOptions smaller = planned;
  const auto predicted = [&](int64_t size) {
    smaller.batch_size = size;
    return predict(model, smaller, cluster);
  };
  int64_t fits = 0, too_large = planned.batch_size;
  while (too_large - fits > 1) {
    const int64_t middle = (fits + too_large) / 2;
    (predicted(middle).fits ? fits : too_large) = middle;
  }
  return {fits, fits > 0 ? predicted(fits).memory.peak : 0};
}

std::vector<records::Saving> savings_of(const PlannedModel& model,
                                        const experiment::ExperimentOptions& planned,
                                        const Prediction& prediction, const Cluster& cluster) {
  analysis::HeldMemory held;
  for (size_t i = 0; i < kHolders; ++i)
    if (prediction.memory.at_peak[i] > 0)
      held.owners.push_back({holder_name(static_cast<Holder>(i)), prediction.memory.at_peak[i]});
  held.options = experiment::experiment_schema().to_json(&planned);
  held.ranks = cluster.ranks();
  std::vector<records::Saving> list = analysis::memory_savings(held);
  const auto [batch, peak] = largest_batch(model, planned, cluster);
  if (batch == 0) return list;
  // The general advice to halve it says less.
  std::erase_if(list, [](const records::Saving& s) { return s.change.starts_with("batch_size"); });
  int64_t divisor = batch;
  while (planned.batch_size % divisor != 0) --divisor;
  list.insert(list.begin(),
              {fmt::format("batch_size = {}", batch), prediction.memory.peak - peak,
               fmt::format("the largest batch that is predicted to fit; batch_size = {}, "
                           "grad_accum = {} has as many samples in a step",
                           divisor, planned.grad_accum * planned.batch_size / divisor)});
  return list;
}

}  // namespace

std::string size_text(double bytes) {
  return bytes >= kGiB ? fmt::format("{:.1f} GiB", bytes / kGiB)
                       : fmt::format("{:.1f} MiB", bytes / kMiB);
}

std::string advice_lines(const std::vector<records::Saving>& savings) {
  constexpr size_t kShownSavings = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShownSavings, savings.size()); ++i)
    text += fmt::format("\n    -> {} saves {}: {}", savings[i].change, size_text(savings[i].bytes),
                        savings[i].reason);
  return text;
}

std::vector<records::Saving> savings_within(const experiment::ExperimentOptions& options,
                                            double memory, int ranks) {
  const bool is_gpu = options.device.starts_with("cuda");
  const experiment::ExperimentOptions planned = planned_of(options);
  const Cluster cluster = here_of(is_gpu, memory, ranks);
  const PlannedModel model(planned, planned.seq_length, is_gpu);
  return savings_of(model, planned, predict(model, planned, cluster), cluster);
}

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
                                  int ranks, double already) {
  if (!options.check_memory) return {};
  const double free = memory_for(options, device);
  if (free <= 0) return {};
  const double memory = free + already;
  const experiment::ExperimentOptions planned = planned_of(options);
  const Cluster cluster = here_of(device.is_cuda(), memory, ranks);
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
  for (size_t i = 0; i < kHolders; ++i)
    if (prediction.memory.at_peak[i] > 0)
      refusal.owners.push_back({holder_name(static_cast<Holder>(i)), prediction.memory.at_peak[i]});
  refusal.savings = savings_of(model, planned, prediction, cluster);
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
