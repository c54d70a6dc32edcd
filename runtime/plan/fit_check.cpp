#include "runtime/plan/fit_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "kernels/common/choice.h"
#include "runtime/comm/rank_environment.h"
#include "runtime/core/allocators.h"
#include "runtime/plan/prediction.h"
#include "runtime/plan/verified_savings.h"
#include "runtime/privacy/engine_names.h"
#include "runtime/profile/host_memory.h"

namespace moonshard::plan {
namespace {

constexpr double kMiB = 1048576.0;

// How many times too large or too small a prediction may be, but for what is exact.
struct Doubt {
  double too_large = 1, too_small = 1;
};
// An allocation that fails on a GPU is an error with advice: better than a refusal that was wrong.
constexpr Doubt kGpuDoubt{1.5, 1};
// The kernel's kill comes without a word. Of random steps on a CPU 19 of 20 are within 10 %.
constexpr Doubt kCpuDoubt{1.1, 1.1};

// Shapes and bytes need no rates; those of time only have to be there.
MachineProfile without_rates(bool is_gpu, double memory) {
  MachineProfile machine;
  machine.name = "this machine";
  machine.is_gpu = is_gpu;
  machine.fixed_segments = is_gpu && !segments_grow();
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

// Engines whose ways bound from below what this one may need: auto decides by its timings, and
// what a script's engine keeps is its own affair.
std::vector<std::string> smallest_modes(const experiment::ExperimentOptions& options) {
  const std::string& mode = options.mode;
  if (mode != "auto") {
    for (const privacy::EngineDescription& known : privacy::engine_descriptions())
      if (known.name == mode && known.built_in) return {mode};
    return {"none", "flash"};
  }
  std::vector<std::string> modes{"auto", "bookkeeping", "flash_bookkeeping"};
  if (options.memory_budget_mb > 0) modes.push_back("flash");  // beyond it backward runs twice
  return modes;
}

// One configuration, and others like it, in the room that there is.
class PlannedStep {
 public:
  PlannedStep(const experiment::ExperimentOptions& options, const Room& room)
      : is_gpu_(room.device.is_cuda()), doubt_(is_gpu_ ? kGpuDoubt : kCpuDoubt), options_(options) {
    options_.compile = "no";
    options_.world = "auto";
    cluster_.machine = without_rates(is_gpu_, room.memory);
    cluster_.gpus = room.ranks;
    model_.emplace(options_, options_.seq_length, cluster_.machine);
    prediction_ = predicted(options_);
  }

  const MemoryPlan& memory() const { return prediction_.memory; }

  /// Bytes that it takes even if predictions are as much too large as they may be.
  double at_least() const {
    double least = std::numeric_limits<double>::infinity();
    experiment::ExperimentOptions smallest = options_;
    for (const std::string& mode : smallest_modes(options_)) {
      smallest.mode = mode;
      const MemoryPlan plan = mode == options_.mode ? memory() : predicted(smallest).memory;
      least = std::min(least, plan.fixed + (plan.peak - plan.fixed) / doubt_.too_large);
    }
    return least;
  }
  /// What must be there for a good start: on a CPU nothing bounds what engine auto keeps.
  double expected() const {
    return is_gpu_ || options_.mode != "auto" ? memory().peak : prediction_.most_bytes;
  }
  double at_most() const {
    return memory().fixed + (expected() - memory().fixed) * doubt_.too_small;
  }

  std::vector<records::OwnedBytes> owners() const {
    std::vector<records::OwnedBytes> list;
    for (size_t i = 0; i < kHolders; ++i)
      if (memory().at_peak[i] > 0)
        list.push_back({holder_name(static_cast<Holder>(i)), memory().at_peak[i]});
    return list;
  }

  std::vector<records::Saving> savings() const {
    std::vector<records::Saving> list = verified_savings(options_, prediction_, cluster_);
    if (const int64_t batch = largest_batch(); batch > 0) {
      // The general advice to halve it says less.
      std::erase_if(list, [](const records::Saving& s) { return s.change.starts_with("batch"); });
      list.push_back({fmt::format("batch_size = {}", batch),
                      std::floor(memory().peak - with_batch(batch, 1).memory.peak),
                      "the largest batch that is predicted to fit" + as_many_samples(batch)});
    }
    std::erase_if(list, [](const records::Saving& s) { return s.bytes <= 0; });
    std::ranges::stable_sort(list, std::ranges::greater{}, &records::Saving::bytes);
    return list;
  }

 private:
  Prediction predicted(const experiment::ExperimentOptions& options) const {
    return predict(*model_, options, cluster_);
  }
  // Micro-batches of that size, `times` as many of them.
  Prediction with_batch(int64_t size, int64_t times) const {
    experiment::ExperimentOptions smaller = options_;
    smaller.batch_size = size;
    smaller.grad_accum *= times;
    return predicted(smaller);
  }

  // The largest micro-batch below the present one that is predicted to fit; 0: none.
  int64_t largest_batch() const {
    int64_t fits = 0, too_large = options_.batch_size;
    while (too_large - fits > 1) {
      const int64_t middle = fits + (too_large - fits) / 2;
      (with_batch(middle, 1).fits ? fits : too_large) = middle;
    }
    return fits;
  }

  // Gradients are summed up between micro-batches, which takes memory of its own.
  std::string as_many_samples(int64_t most) const {
    const int64_t batch = options_.batch_size;
    std::vector<int64_t> sizes;  // that divide it
    for (int64_t i = 1; i <= batch / i; ++i)
      if (batch % i == 0) sizes.insert(sizes.end(), {i, batch / i});
    std::ranges::sort(sizes, std::ranges::greater{});
    for (const int64_t size : sizes)
      if (size <= most && with_batch(size, batch / size).fits)
        return fmt::format("; batch_size = {}, grad_accum = {} has as many samples in a step", size,
                           options_.grad_accum * (batch / size));
    return "";
  }

  bool is_gpu_;
  Doubt doubt_;
  experiment::ExperimentOptions options_;
  Cluster cluster_;
  std::optional<PlannedModel> model_;
  Prediction prediction_;
};

// "21.9 GiB on cpu", "5.4 GiB on cpu for each of the 4 ranks that share it".
std::string place_text(double bytes, const std::string& place, int sharers) {
  std::string text = fmt::format("{} on {}", size_text(bytes), place);
  if (sharers > 1) text += fmt::format(" for each of the {} ranks that share it", sharers);
  return text;
}

std::string warning_text(const experiment::ExperimentOptions& options, const PlannedStep& step,
                         const Room& room) {
  const bool is_cpu = room.device.is_cpu(), may_vary = step.expected() > step.memory().peak;
  std::string text = fmt::format(
      "warning: {} may not fit into memory: a step is predicted to need {}{}, got {}; {}",
      options.model, may_vary ? "up to " : "", size_text(step.expected()),
      place_text(room.memory, room.device.str(), is_cpu ? room.sharers : 1),
      is_cpu ? "the kernel may end it without a word" : "an allocation may fail");
  if (may_vary) return text + "; memory_budget_mb bounds what engine auto keeps";
  const std::vector<records::Saving> savings = step.savings();
  for (size_t i = 0; i < std::min<size_t>(2, savings.size()); ++i)
    text += fmt::format("{}{} saves {}", i == 0 ? "; " : ", ", savings[i].change,
                        size_text(savings[i].bytes));
  return text;
}

}  // namespace

std::string size_text(double bytes) {
  return bytes >= kGiB ? fmt::format("{:.1f} GiB", bytes / kGiB)
                       : fmt::format("{:.1f} MiB", bytes / kMiB);
}

std::string advice_lines(const std::vector<records::Saving>& savings) {
  std::string text;
  for (const records::Saving& saving : savings)
    text += fmt::format("\n    -> {} saves {}: {}", saving.change, size_text(saving.bytes),
                        saving.reason);
  return text;
}

std::vector<records::Saving> savings_within(const experiment::ExperimentOptions& options,
                                            const Room& room) {
  return PlannedStep(options, room).savings();
}

Room room_for(const experiment::ExperimentOptions& options, c10::Device device, comm::World& world,
              double already) {
  Room room;
  room.device = device;
  room.ranks = world.size();
  const bool are_real = world.size() > 1 && !world.is_fake();
  if (const auto environment = comm::rank_environment(); are_real && environment)
    room.sharers = environment->local_world;
  if (device.is_cuda())
    room.memory = static_cast<double>(
        kernels::memory_around(at::empty({0}, at::TensorOptions().device(device))));
  // With a limit of its own the allocator refuses, and nothing is killed.
  const bool asks_host = device.is_cuda() ? options.cpu_offload : options.memory_limit_mb <= 0;
  if (!asks_host) return room;
  const int64_t bytes = profile::free_host_memory().bytes;
  double free = bytes < 0 ? -1 : static_cast<double>(bytes) / room.sharers;
  if (are_real) {
    // Ranks come here one after the other: the last, which sees what the others hold by now,
    // decides for all, and none fills memory before it has looked.
    const at::Tensor least = at::full({1}, free, at::kDouble);
    world.group("statistics", c10::kCPU)
        ->all_reduce(least, "free memory", comm::Reduction::Min)
        .wait();
    free = least.item<double>();
  }
  if (device.is_cuda())
    room.host = free;
  else
    room.memory = free > 0 ? free + already : 0;
  return room;
}

FitCheck check_fit(const experiment::ExperimentOptions& options, const Room& room) {
  FitCheck check;
  if (!options.check_memory || room.memory <= 0) return check;
  const PlannedStep step(options, room);
  const MemoryPlan& memory = step.memory();
  const bool no_floor = memory.floor > room.memory;
  const bool no_peak = step.at_least() > room.memory;
  const bool no_host = room.host >= 0 && memory.host > room.host;
  if (!no_floor && !no_peak && !no_host) {
    if (step.at_most() > room.memory) check.warning = warning_text(options, step, room);
    return check;
  }
  const bool is_device = no_floor || no_peak;
  Refusal refusal;
  refusal.needed = no_floor ? memory.floor : no_peak ? memory.peak : memory.host;
  refusal.free = is_device ? room.memory : room.host;
  refusal.owners = step.owners();
  if (is_device) refusal.savings = step.savings();  // none of these is on the host
  refusal.text =
      fmt::format("{}{}{}, got {} for {}; check_memory = false starts it all the same",
                  options.model, kCannotFit,
                  place_text(refusal.free, is_device ? room.device.str() : "the host",
                             is_device && !room.device.is_cpu() ? 1 : room.sharers),
                  size_text(refusal.needed),
                  no_floor  ? "parameters, gradients, optimizer state and data alone"
                  : no_peak ? "a step, by prediction"
                            : "parameters, gradients and optimizer state in host memory");
  check.refusal = std::move(refusal);
  return check;
}

std::optional<Refusal> refusal_or_warning(const experiment::ExperimentOptions& options,
                                          c10::Device device, comm::World& world, double already) {
  if (!options.check_memory) return {};
  FitCheck check = check_fit(options, room_for(options, device, world, already));
  if (!check.warning.empty() && world.rank() == 0)
    fmt::print(stderr, "moonshard: {}\n", check.warning);
  return std::move(check.refusal);
}

}  // namespace moonshard::plan
