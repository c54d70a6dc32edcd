#include "viewer/widgets/definitions.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "runtime/experiment/experiment_options.h"
#include "runtime/profile/owner_names.h"
#include "runtime/profile/phase_names.h"

namespace moonshard::viewer {
namespace {

// What records hold beside options, phases and owners.
constexpr std::pair<std::string_view, std::string_view> kFigures[] = {
    // Time
    {"avg_time_ms", "Mean time of a measured step; the warm-up is not in it."},
    {"median_time_ms", "Median time of a measured step: half of them took less."},
    {"min_time_ms", "Time of the fastest measured step."},
    {"max_time_ms", "Time of the slowest measured step."},
    {"p95_time_ms", "95 of 100 measured steps took at most this long."},
    {"iqr_time_ms", "Spread of the middle half of the measured steps: third quartile minus first."},
    {"end_to_end_s", "Everything from the start to the end, the making of the model included."},
    {"profiler_overhead_percent",
     "How much longer the watched step took than the median of the measured ones."},
    {"data_share_percent", "Share of the step that went into getting its batch."},
    {"time_ms", "Time of this step: the sum of its phases."},
    {"phases_ms", "Time of each phase of the step."},
    {"samples_ms", "Time of each measured step."},
    {"norm_ms", "Time that finding the norms of one layer took, in the watched step."},
    {"layer", "A part of the model with parameters of its own."},
    {"kind", "Kind of layer: which rule finds its norms."},
    // Statistics
    {"count", "How many there were."},
    {"mean", "Sum over count."},
    {"median", "Half are below."},
    {"min", "The smallest."},
    {"max", "The largest."},
    {"p95", "95 of 100 are at most this."},
    {"iqr", "Third quartile minus first: the spread of the middle half."},
    // Memory
    {"peak_memory_bytes", "Most memory that tensors held at once in the measured steps."},
    {"peak_memory_mb", "Most memory that tensors held at once in the measured steps, in MiB."},
    {"peak_memory_gb", "Most memory that tensors held at once in the measured steps, in GiB."},
    {"peak_reserved_bytes",
     "Most memory that the allocator had taken from the device: tensors and what it keeps ready."},
    {"rss_bytes", "Resident set: host memory of the process."},
    {"parameter_bytes", "Memory of the model's parameters, all ranks together."},
    {"optimizer_bytes", "Memory of the optimizer's state on this rank."},
    {"engine_kept_bytes", "Most that the clipping engine kept from layer to layer in a step."},
    {"allocated_bytes", "Memory of tensors at that moment."},
    {"max_allocated_bytes", "Most memory of tensors up to that moment, or within the phase."},
    {"reserved_bytes", "Memory that the allocator had taken from the device at that moment."},
    {"max_reserved_bytes", "Most that the allocator had taken from the device."},
    {"bytes_asked", "What was asked for when memory ran out."},
    {"bytes_free", "What was free when memory ran out."},
    {"stage", "A moment of the experiment, or a phase of the watched step."},
    {"gradient_bytes", "Memory of this rank's gradients at the end of a step."},
    {"gathered_peak_bytes", "Most memory of parameters that were gathered from other ranks."},
    {"in_flight_peak_bytes", "Most memory of messages under way."},
    // Parts of memory and of norms that have no descriptor of their own
    {"rest", "Memory at the peak that nobody claimed."},
    {"reduce", "Among the norms: their sum over ranks."},
    {"local", "Part of finding the norms: the work in each layer."},
    {"stacking", "Part of finding the norms: adding layers up for each sample."},
    {"final", "Part of finding the norms: roots of the sums."},
    // Communication
    {"comm_bytes", "Bytes of all collectives of the watched step."},
    {"comm_work_ms", "Time that collectives worked in the watched step, hidden or not."},
    {"comm_exposed_ms", "Time that the computation waited for collectives in the watched step."},
    {"comm_overlap_percent", "Share of the collectives' work that was hidden behind computation."},
    {"comm_share_percent", "Exposed communication over the time of the step."},
    {"operation",
     "Kind of collective; 'host' before it: a message between hosts beside the GPU's work."},
    {"bytes", "Size of what was sent or held."},
    {"work_ms", "From when a collective began to work until it was done."},
    {"exposed_ms", "How long the computation waited for it."},
    {"overlap_percent", "Share of the work that was hidden behind computation."},
    {"rank", "One of the processes that share the work, counted from 0."},
    // Throughput and use
    {"tokens_per_s", "Tokens of all ranks per second, over all measured steps."},
    {"samples_per_s", "Samples of all ranks per second, over all measured steps."},
    {"flops_per_step",
     "Floating-point operations that plain training of this rank's tokens needs."},
    {"mfu_percent", "flops_per_step in the median step against the GPU's data-sheet peak."},
    {"gpu_utilization_percent",
     "Mean of the driver's samples of the GPU's use; says little of short runs."},
    {"cpu_percent", "CPU time of the process over wall time; 200 is two cores."},
    {"num_parameters", "Numbers that the model is made of."},
    {"final_loss", "Mean loss of the last step."},
    {"loss", "Mean loss over the samples of the step."},
    // Privacy
    {"clip_fraction", "Share of samples whose gradient norm was above the clipping bound."},
    {"dropped_samples", "Samples without a finite gradient: they contributed nothing."},
    {"epsilon",
     "What the result claims as its privacy loss: the smaller, the more private. A claim, not a "
     "proof."},
    {"delta", "Chance that the bound epsilon does not cover."},
    {"sampling_rate", "Chance of each sample to be in a step's batch."},
    {"sampler", "How batches are drawn; fixed: they are not, and no epsilon follows."},
    {"accountant", "Which computation turned noise, rate and steps into epsilon."},
    {"noise_source",
     "Where noise comes from: the seed, with which it can be computed and taken away, or a "
     "secret."},
    {"history", "Phases of the run, each with its own sampling rate and noise."},
    {"private_engine", "The engine clips and adds noise, and nothing in the setup undoes that."},
    {"why_no_epsilon", "Why the result claims no epsilon."},
    {"norms_histogram",
     "How many samples of the watched step had which gradient norm; only where nothing is "
     "claimed."},
    {"steps", "Noised updates so far, warm-up and watched steps included."},
    // Overhead
    {"time_ratio", "Time of the step over that of its baseline; above 1 is slower."},
    {"throughput_ratio", "Tokens per second over those of its baseline; above 1 is faster."},
    {"memory_bytes", "Peak memory above that of its baseline."},
    {"memory_percent", "Peak memory above that of its baseline, as a share of it."},
    // Columns
    {"run", "Name of the run folder."},
    {"id", "Name of the point's folder: a hash of its options."},
    {"status",
     "What became of the point: planned, running, ok, oom (out of memory), failed, timeout, "
     "skipped, unreadable."},
    {"error", "Why the point has no result."},
    {"created", "When it was written, by the writer's clock."},
    {"attempts", "How often the point was started."},
    {"phase", "The part of the step, or of the start, in which it happened."},
    {"step", "Number of the step, from 1; the warm-up counts."},
};

// "engine auto: …" as "Engine auto: …."; names of engines, wrappers and the like stay as they are
// ("fsdp: …", "llama3 scaling: …").
std::string sentence(std::string text) {
  const std::string first = text.substr(0, text.find(' '));
  const bool is_word = std::all_of(first.begin(), first.end(),
                                   [](unsigned char c) { return std::isalpha(c) || c == '\''; });
  if (is_word && !text.empty())
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

// A name may be several things at once: an option and a phase (optimizer), a phase and an owner
// (data).
std::unordered_map<std::string_view, std::string> all_definitions() {
  std::unordered_map<std::string_view, std::string> all;
  const auto add = [&](std::string_view name, const std::string& text) {
    std::string& known = all[name];
    known += (known.empty() ? "" : " ") + text;
  };
  for (const Option& option : experiment::experiment_schema().options())
    add(option.name, sentence(option.doc));
  for (const auto& [name, doc] : profile::kPhases) add(name, fmt::format("Phase: {}.", doc));
  for (const auto& [name, doc] : profile::kOwnerNames)
    add(name, fmt::format("Owner of memory: {}.", doc));
  for (const auto& [name, text] : kFigures) add(name, std::string(text));
  return all;
}

}  // namespace

std::string_view definition_of(std::string_view key) {
  static const std::unordered_map<std::string_view, std::string> all = all_definitions();
  const auto found = all.find(key);
  return found == all.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace moonshard::viewer
